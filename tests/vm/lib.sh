# What a scenario can use. Sourced first; everything runs as root inside the virtual machine.
#
# A scenario is a shell script that ends with status 0 when every promise was kept. Its first lines say how it is run:
#   # deadline: QUICK FULL   seconds after which it has failed (at level soak: ten times FULL)
#   # transports: both|once  once for each of tcp and rdma (default), or once in all
#
# From outside: TRANSPORT (tcp, rdma), LEVEL (quick, full, soak), SERVER (gateway, knfsd), LOGS (a folder of the host),
# EXPORT (the served folder as the server sees it), VM_ADDR, NETDEV.

set -Eeuo pipefail
export LC_ALL=C.UTF-8

MOUNT=/mnt/nfs
EXPORT=/data
BIN=/host/bin
SERVER_HOST=${SERVER_HOST:-$VM_ADDR}
IO=${IO:-buffered}
SQUASH=${SQUASH:-none}
SERVER_PID_FILE=/run/aqueduct.pid

# ---- results

note() { echo "  $*"; }
fail() { trap - ERR; echo "FAIL: $*" >&2; echo "$*" >"$LOGS/reason"; exit 1; }
skip() { trap - ERR; echo "SKIP: $*" >&2; echo "$*" >"$LOGS/reason"; exit 77; }
# Any command that fails ends the scenario; the line named is the scenario's own.
on_error() { fail "line ${BASH_LINENO[${#BASH_LINENO[@]} - 2]}: $BASH_COMMAND (status $1)"; }
trap 'on_error $?' ERR

# quick_or_full QUICK FULL [SOAK]: the size of the work at this level.
quick_or_full() {
  case $LEVEL in
    quick) echo "$1" ;;
    full) echo "$2" ;;
    soak) echo "${3:-$2}" ;;
  esac
}

expect_equal() { # WHAT GOT WANTED
  [ "$2" = "$3" ] || fail "$1: got '$2', expected '$3'"
}

# expect_same FILE FILE: byte for byte.
expect_same() {
  local difference
  difference=$(cmp "$1" "$2" 2>&1) || fail "contents differ: $difference"
}

# expect_error TEXT COMMAND...: the command fails, and with this error.
expect_error() {
  local text=$1 output
  shift
  if output=$("$@" 2>&1); then fail "'$*' succeeded, expected '$text'"; fi
  case $output in *"$text"*) ;; *) fail "'$*' failed with '$output', expected '$text'" ;; esac
}

# within SECONDS WHAT COMMAND...: waits until the command succeeds.
within() {
  local seconds=$1 what=$2 end
  shift 2
  end=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "$what: not within $seconds s"
    sleep 0.2
  done
}

as_user() { # UID[:GID[,GROUP...]] COMMAND...
  local who=$1 uid gid groups
  shift
  uid=${who%%:*} gid=$uid groups=
  case $who in *:*) gid=${who#*:} ;; esac
  case $gid in *,*) groups=${gid#*,} gid=${gid%%,*} ;; esac
  if [ -n "$groups" ]; then setpriv --reuid "$uid" --regid "$gid" --groups "$groups" "$@"
  else setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"; fi
}

# ---- the server

# start_server [ARGS...]: the gateway with these further arguments (ignored by the kernel's server).
start_server() {
  case $SERVER in
    gateway) start_gateway "$@" ;;
    knfsd) start_knfsd ;;
    *) fail "unknown server '$SERVER'" ;;
  esac
}

start_gateway() {
  echo "--- start: $(date +%T) $*" >>"$LOGS/gateway.log"
  local argument exports=(--export "$EXPORT=$EXPORT")
  for argument in "$@"; do case $argument in --export | --config) exports=() ;; esac; done
  "$BIN/aqueduct" serve "${exports[@]}" --squash "$SQUASH" --io "$IO" --tcp 0.0.0.0:2049 --rdma 0.0.0.0:20049 \
    --state-dir /var/lib/aqueduct "$@" >>"$LOGS/gateway.log" 2>&1 &
  echo $! >$SERVER_PID_FILE
  disown
  within 30 'the gateway accepts TCP connections' tcp_open 2049
  if has_rdma; then within 30 'the gateway listens for RDMA' rdma_listens; fi
}

start_knfsd() {
  modprobe nfsd
  # groups as the client sends them, as without a directory service
  sed -i 's/^manage-gids.*/manage-gids=n/' /etc/nfs.conf
  mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
  pidof rpcbind >/dev/null || rpcbind -w || rpcbind
  pidof rpc.mountd >/dev/null || rpc.mountd --port 20048
  local squash=no_root_squash
  [ "$SQUASH" = none ] || squash=root_squash
  exportfs -i -o "rw,$squash,fsid=1,insecure,no_subtree_check,async" "*:$EXPORT"
  echo 5 >/proc/fs/nfsd/nfsv4gracetime 2>/dev/null || true
  rpc.nfsd -V 3 8
  grep -q rdma /proc/fs/nfsd/portlist || echo 'rdma 20049' >/proc/fs/nfsd/portlist
}

tcp_open() { (exec 3<>"/dev/tcp/$SERVER_HOST/$1") 2>/dev/null; }
has_rdma() { [ -e /sys/class/infiniband/rxe0 ]; }
rdma_listens() { rdma resource show cm_id 2>/dev/null | grep -q 'LISTEN.*:20049'; }
server_pid() { cat $SERVER_PID_FILE; }

# stop_server: asks it to drain and waits; crash_server: without a word.
stop_server() {
  if [ "$SERVER" = knfsd ]; then rpc.nfsd 0; exportfs -ua; return 0; fi
  local pid
  pid=$(server_pid)
  kill -TERM "$pid"
  within 30 'the gateway ends after SIGTERM' server_gone "$pid"
  rm -f $SERVER_PID_FILE
}

crash_server() {
  if [ "$SERVER" = knfsd ]; then rpc.nfsd 0; return 0; fi
  local pid
  pid=$(server_pid)
  kill -KILL "$pid"
  within 10 'the gateway is gone after SIGKILL' server_gone "$pid"
}

server_gone() { ! kill -0 "$1" 2>/dev/null || [ "$(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null)" = Z ]; }

server_rss_kib() { sed -n 's/^VmRSS:\s*\([0-9]*\).*/\1/p' "/proc/$(server_pid)/status"; }

# Skips when this scenario asks about the gateway itself.
gateway_only() { [ "$SERVER" = gateway ] || skip 'about the gateway, not about NFS'; }

# ---- the client

mount_options() { # TRANSPORT [OPTION,...]
  local mountport=2049 options
  [ "$SERVER" = gateway ] || mountport=20048
  case $1 in
    tcp) options=proto=tcp,port=2049 ;;
    rdma) options=proto=rdma,port=20049 ;;
    *) fail "unknown transport '$1'" ;;
  esac
  echo "vers=3,$options,mountport=$mountport,mountproto=tcp,nolock${2:+,$2}"
}

mount_with() { # TRANSPORT FOLDER [OPTION,...]
  mkdir -p "$2"
  local error
  error=$(timeout 60 mount -t nfs -o "$(mount_options "$1" "${3:-}")" "$SERVER_HOST:$EXPORT" "$2" 2>&1) ||
    fail "mount over $1 failed: $error"
}

# mount_nfs [FOLDER [OPTION,...]]: over this run's transport; mount_tcp and mount_rdma name one.
mount_nfs() { mount_with "$TRANSPORT" "${1:-$MOUNT}" "${2:-}"; }
mount_tcp() { mount_with tcp "${1:-$MOUNT}" "${2:-}"; }
mount_rdma() { mount_with rdma "${1:-$MOUNT}" "${2:-}"; }

unmount() { umount "${1:-$MOUNT}"; }

# Forgets what the client has cached, so that the next read asks the server.
drop_caches() { sync; echo 3 >/proc/sys/vm/drop_caches; }

# The common start: a server, and the export mounted on $MOUNT.
serve_and_mount() { # [OPTION,...]
  start_server
  mount_nfs "$MOUNT" "${1:-}"
  cd "$MOUNT"
}

# ---- I/O that goes on while something happens to the server

# begin_load NAME FOLDER: files are written and read back until end_load, which fails when any of it met an error.
declare -A LOADS=()
begin_load() {
  [ ${#LOADS[@]} -gt 0 ] || rm -f /run/load.*
  mkdir -p "$2"
  python3 /host/vm/scenarios/steady_load.py "$2" "$1" >"$LOGS/load.$1" 2>&1 &
  LOADS[$1]=$!
}
load_done() { cat "/run/load.$1" 2>/dev/null || echo 0; } # NAME: rounds so far
more_load() { [ "$(load_done "$1")" -gt "$2" ]; }         # NAME ROUNDS
end_load() {
  local name
  touch /run/load.stop
  for name in "${!LOADS[@]}"; do
    wait "${LOADS[$name]}" || fail "the load '$name' met an error: $(tail -n 1 "$LOGS/load.$name")"
    note "$(cat "$LOGS/load.$name")"
  done
  LOADS=()
}
