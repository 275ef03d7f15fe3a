# Functions of scripts that make systems of Debian in folders, by debootstrap, as root on Debian.

# Where the programs of administrators are, of this system and of the one that is made.
export PATH="$PATH:/usr/sbin:/sbin"

# Installs what is missing. Usage: need PROGRAM:PACKAGE...
need() {
  local each missing=()
  for each; do
    command -v "${each%%:*}" >/dev/null || missing+=("${each##*:}")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Removes a system that was not made to its end.
clear_unfinished() {
  local mount
  # It may have been stopped while the kernel's file systems were mounted there.
  for mount in proc sys; do umount "$1/$mount" 2>/dev/null || true; done
  rm -rf --one-file-system "$1"
}
