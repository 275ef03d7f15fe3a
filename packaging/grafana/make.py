#!/usr/bin/env python3
"""Writes dashboard.json: a dashboard for Grafana, a panel for each query below."""
import json
import pathlib

PANELS = [
    ("Transmitted, bit/s", "bps", 'sum by (port) (rate(softnetd_port_transmit_bytes_total[1m])) * 8'),
    ("Received, bit/s", "bps", 'sum by (port) (rate(softnetd_port_receive_bytes_total[1m])) * 8'),
    ("Transmitted, packets/s", "pps", 'sum by (port) (rate(softnetd_port_transmit_packets_total[1m]))'),
    ("Dropped, packets/s", "pps", 'sum by (port, reason) (rate(softnetd_port_drops_total[1m]))'),
    ("Time in the port, 99 %", "s",
     'histogram_quantile(0.99, sum by (port, le) (rate(softnetd_port_sojourn_seconds_bucket[1m])))'),
    ("Transmit call, 99 %", "s",
     'histogram_quantile(0.99, sum by (port, le) (rate(softnetd_port_call_seconds_bucket[1m])))'),
    ("Queued, packets", "short", 'softnetd_port_queued_packets'),
    ("Classes, bit/s", "bps", 'topk(20, rate(softnetd_class_bytes_total[1m]) * 8)'),
    ("Classes, drops/s", "pps", 'topk(20, rate(softnetd_class_drops_total[1m]))'),
    ("Workers busy", "percentunit", 'rate(softnetd_worker_busy_seconds_total[1m])'),
    ("Workers woken, 1/s", "short", 'rate(softnetd_worker_wakes_total[1m])'),
    ("Free buffers", "percentunit", 'softnetd_pool_free_buffers / softnetd_pool_buffers'),
]

panels = []
for place, (title, unit, query) in enumerate(PANELS):
    panels.append({
        "id": place + 1,
        "title": title,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 12, "x": 12 * (place % 2), "y": 8 * (place // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"expr": query, "refId": "A"}],
    })
board = {
    "title": "Softnet",
    "uid": "softnet",
    "schemaVersion": 39,
    "refresh": "10s",
    "time": {"from": "now-15m", "to": "now"},
    "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
    "panels": panels,
}
path = pathlib.Path(__file__).with_name("dashboard.json")
path.write_text(json.dumps(board, indent=1) + "\n")
