# Doc paragraphs that open with a word that hides their subject, and lines beyond column 100: one
# line each, `FILE:LINE: opening: TEXT` or `FILE:LINE: long line`. For Rust sources and Markdown, with
# LC_ALL=C. Wrapped lines of a paragraph open nothing; tables, code and links may be long.
FNR == 1 { open = 1; fence = 0; markdown = FILENAME ~ /\.md$/ }
{
  columns = $0
  gsub(/[\200-\277]/, "", columns)
  if ($0 ~ /^[ \t]*```/) fence = !fence
  may_be_long = markdown && (fence || $0 ~ /^\|/) || $0 ~ /https?:|\]\(/
  if (length(columns) > 100 && !may_be_long) print FILENAME ":" FNR ": long line"
}
!markdown && /^[ \t]*\/\/[\/!]/ {
  text = $0
  sub(/^[ \t]*\/\/[\/!][ \t]*/, "", text)
  if (open && text ~ /^(What|Whether|How|Its|Of|Those)([^A-Za-z_]|$)/) {
    print FILENAME ":" FNR ": opening: " text
  }
  open = text == ""
  next
}
{ open = 1 }
