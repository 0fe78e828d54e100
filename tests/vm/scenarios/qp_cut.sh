# deadline: 200 400
# transports: once
# Single queue pairs die under load while the device stays: the client connects again, I/O over RDMA ends without an error
# and byte for byte, and neither the other queue pair of the mount nor a TCP mount beside it is disturbed.
. /host/vm/lib.sh

gateway_only
connects() { # TRANSPORT: how often the client has connected
  awk -v kind="$1" '$1 == "xprt:" && $2 == kind { sum += $5 } END { print sum + 0 }' /proc/self/mountstats
}
connects_more() { [ "$(connects rdma)" -gt "$1" ]; }

start_server
mount_rdma /mnt/rdma nconnect=2
mount_tcp /mnt/tcp
begin_load rdma /mnt/rdma/by-rdma
begin_load rdma2 /mnt/rdma/by-rdma2
begin_load tcp /mnt/tcp/by-tcp
within 60 'I/O over TCP' more_load tcp 2
tcp_before=$(connects tcp)
cuts=$(quick_or_full 4 10 60)
for cut in $(seq "$cuts"); do
  for name in rdma rdma2; do
    within 60 "cut $cut: I/O over RDMA before it" more_load $name $(($(load_done $name) + 2))
  done
  sleep "0.$((RANDOM % 4))"
  before=$(connects rdma)
  python3 /host/vm/scenarios/qp_cut.py "$(server_pid)" "$cut" >>"$LOGS/cuts" 2>&1 || fail "cut $cut was not made"
  within 60 "cut $cut: the client connects again" connects_more "$before"
  within 20 "cut $cut: I/O over TCP goes on" more_load tcp $(($(load_done tcp) + 2))
done
for name in rdma rdma2; do
  within 60 'I/O over RDMA after the last cut' more_load $name $(($(load_done $name) + 2))
done
end_load
expect_equal 'connections that TCP made anew' "$(($(connects tcp) - tcp_before))" 0
umount /mnt/rdma /mnt/tcp
# every queue pair that died is given back
within 30 'no queue pair is left' sh -c '! rdma resource show qp | grep -q "type RC.*pid $(cat '$SERVER_PID_FILE') "'
