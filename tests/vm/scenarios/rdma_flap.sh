# deadline: 200 400
# transports: once
# The RDMA device goes away and comes back under load: I/O over RDMA waits and ends without an error, and a TCP mount of
# the same export beside it never notices.
. /host/vm/lib.sh

gateway_only
start_server
mount_rdma /mnt/rdma
mount_tcp /mnt/tcp
begin_load rdma /mnt/rdma/by-rdma
begin_load tcp /mnt/tcp/by-tcp
for flap in $(seq "$(quick_or_full 2 4 20)"); do
  within 60 "flap $flap: I/O over RDMA before it" more_load rdma $(($(load_done rdma) + 2))
  rdma link del rxe0
  within 20 "flap $flap: I/O over TCP while the device is gone" more_load tcp $(($(load_done tcp) + 2))
  rdma link add rxe0 type rxe netdev "$NETDEV"
  within 90 "flap $flap: I/O over RDMA goes on" more_load rdma $(($(load_done rdma) + 2))
done
end_load
