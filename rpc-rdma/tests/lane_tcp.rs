//! A lane with a small program, driven by real TCP clients.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
    time::{Duration, Instant},
};

use buffers::{PagePool, Payload, Pool, pool::SLACK_BYTES};
use bytes::Bytes;
use rpc_rdma::{
    driver::{ConnectionLimits, Lane, LaneHandle, LaneSettings, stream::StreamSettings},
    rpc::{
        Call,
        record::FragmentHeader,
        reply::{self, AcceptError},
    },
    service::{Begun, Peer, ReplyBudget, Service, Ticket},
    xdr::{Rope, Writer},
};

/// Procedure 1 echoes its payload at once, 2 echoes it from another thread, 3 gives as many bytes as asked,
/// 4 is never done with giving them, 5 gives one byte in a buffer of that size, 6 as many bytes as asked in a
/// buffer of that size, 7 as many in pages of a file, 8 the same of a file that is overwritten and cut short
/// before they are sent.
struct Echo {
    waker: Waker,
    done: Arc<Mutex<Vec<(Ticket, Rope)>>>,
    endless: Arc<AtomicUsize>,
    pool: Arc<Pool>,
    page_pool: Arc<PagePool>,
}

fn echo(call: &Call) -> Rope {
    let xid = call.header.xid;
    match call.args().payload(2 << 20, "data") {
        Ok(data) => {
            let mut w = reply::success(xid);
            w.payload(data);
            w.u32(call.header.procedure);
            w.finish()
        }
        Err(_) => reply::error(xid, AcceptError::GarbageArguments),
    }
}

impl Echo {
    /// The first `len` bytes of a file, by reference; copied when all pipes are in use.
    fn pages(&self, file: &std::fs::File, len: usize) -> Payload {
        let Some(pages) = self.page_pool.take(0, len) else {
            return page_bytes()[..len].to_vec().into();
        };
        while pages.len() < len {
            let at = pages.len();
            pages.filled(pages.splice_from(file.as_fd(), at as u64, len - at).unwrap());
        }
        Payload::Pages(Arc::new(pages))
    }
}

fn page_bytes() -> Vec<u8> {
    (0..1_000_000u32).map(|n| (n / 3 % 253) as u8).collect()
}

/// A file that holds [`page_bytes`] and has no name any more.
fn page_file() -> std::fs::File {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("aqueduct-lane-tcp-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, page_bytes()).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

impl Service for Echo {
    fn call(&mut self, ticket: Ticket, _: &Peer, budget: ReplyBudget, call: Call) -> Begun {
        let xid = call.header.xid;
        match call.header.procedure {
            1 => Begun::Reply(echo(&call)),
            2 => {
                let (done, waker) = (self.done.clone(), self.waker.clone());
                std::thread::spawn(move || {
                    done.lock().unwrap().push((ticket, echo(&call)));
                    waker.wake();
                });
                Begun::Pending
            }
            3 => {
                let len = call.args().u32("length").unwrap_or(0) as usize;
                let mut w = reply::success(xid);
                w.payload(Bytes::from(vec![7; len.min(budget.bulk_bytes_max(64))]));
                Begun::Reply(w.finish())
            }
            procedure @ (7 | 8) => {
                let len = call.args().u32("length").unwrap_or(0) as usize;
                let mut w = reply::success(xid);
                let file = page_file();
                w.payload(self.pages(&file, len));
                if procedure == 8 {
                    file.write_all_at(&vec![0xee; len / 2], 0).unwrap();
                    file.set_len(len as u64 / 4).unwrap();
                }
                w.u32(0x656e_6421);
                Begun::Reply(w.finish())
            }
            procedure @ (5 | 6) => {
                let len = call.args().u32("length").unwrap_or(0) as usize;
                let Some(lease) = self.pool.take(len + SLACK_BYTES) else {
                    return Begun::Reply(reply::error(xid, AcceptError::SystemError));
                };
                let mut w = reply::success(xid);
                w.payload(lease.freeze(0, if procedure == 5 { 1 } else { len }));
                Begun::Reply(w.finish())
            }
            4 => {
                self.endless.fetch_add(1, Ordering::SeqCst);
                Begun::Pending
            }
            _ => Begun::Reply(reply::error(xid, AcceptError::ProcedureUnavailable)),
        }
    }

    fn reply_bulk_bytes(&self, call: &Call) -> usize {
        match call.header.procedure {
            3..=6 => call.args().u32("length").unwrap_or(0) as usize,
            _ => 0,
        }
    }

    fn finished(&mut self, out: &mut Vec<(Ticket, Rope)>) {
        out.append(&mut self.done.lock().unwrap());
    }

    fn flush(&mut self) {}

    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        Vec::new()
    }

    fn bulk_offset(&self, start: &[u8]) -> Option<usize> {
        (start.len() >= 44).then_some(44)
    }
}

struct Server {
    lane: LaneHandle,
    address: SocketAddr,
    pool: Arc<Pool>,
    page_pool: Arc<PagePool>,
    endless: Arc<AtomicUsize>,
}

/// Pipes of a lane here.
const PIPES: usize = 4;

fn serve(stream: StreamSettings, limits: Arc<ConnectionLimits>) -> Server {
    let pool = Pool::standalone(32 << 20);
    let settings = LaneSettings {
        name: "lane".into(),
        cpu: None,
        spin: Duration::ZERO,
        stream,
        rdma: Default::default(),
        limits,
    };
    let endless = Arc::new(AtomicUsize::new(0));
    let begun = endless.clone();
    let page_pool = PagePool::new(PIPES);
    let pipes = page_pool.clone();
    let lane = Lane::spawn(
        settings,
        pool.clone(),
        Box::new(|context| {
            let (waker, done) = (context.waker.clone(), Arc::default());
            let pool = context.pool.clone();
            Ok(Box::new(Echo { waker, done, endless: begun, pool, page_pool: pipes })
                as Box<dyn Service>)
        }),
    )
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    lane.listen_tcp(listener).unwrap();
    Server { lane, address, pool, page_pool, endless }
}

fn simple() -> Server {
    serve(StreamSettings::default(), ConnectionLimits::new(100, 0, 100))
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn call(xid: u32, procedure: u32, args: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::default();
    for word in [xid, 0, 2, 400_000, 1, procedure, 0, 0, 0, 0] {
        w.u32(word);
    }
    args(&mut w);
    w.finish().flatten()
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = FragmentHeader::single(message.len()).to_vec();
    out.extend_from_slice(message);
    out
}

fn read_record(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let header = FragmentHeader::decode(mark);
    assert!(header.last);
    let mut body = vec![0; header.len];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// Soon, that is: the last holder may be a thread that has yet to end.
fn every_buffer_comes_back(server: &Server) {
    let all = || server.pool.stats().free == server.pool.stats().total;
    assert!((0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        all()
    }));
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + seed) as u8).collect()
}

fn check_echo(reply: &[u8], xid: u32, data: &[u8]) {
    assert_eq!(reply[..4], xid.to_be_bytes());
    assert_eq!(reply[20..24], [0; 4], "accepted");
    assert_eq!(reply[24..28], (data.len() as u32).to_be_bytes());
    assert!(&reply[28..28 + data.len()] == data, "the data comes back unchanged");
}

#[test]
fn sizes_inline_and_bulk_at_once_and_later() {
    let server = simple();
    let mut stream = connect(&server);
    let sizes = [0, 1, 3, 4, 5, 4095, 4097, 32_000, 32_768, 65_535, 65_537, 262_145, 1 << 20];
    for (i, &size) in sizes.iter().enumerate() {
        for procedure in [1, 2] {
            let (xid, data) = (i as u32 * 10 + procedure, pattern(size, i));
            stream.write_all(&framed(&call(xid, procedure, |w| w.opaque(&data)))).unwrap();
            check_echo(&read_record(&mut stream).unwrap(), xid, &data);
        }
    }
    every_buffer_comes_back(&server);
}

#[test]
fn pages_of_a_file_stand_in_their_place_of_the_stream() {
    let server = simple();
    let mut stream = connect(&server);
    let data = page_bytes();
    for (xid, len) in [1usize, 4095, 4096, 70_001, 1_000_000, 3].into_iter().enumerate() {
        let xid = xid as u32;
        // Others around it, so that slices and pages alternate in one queue.
        let calls = [
            framed(&call(xid, 1, |w| w.opaque(b"before"))),
            framed(&call(xid, 7, |w| w.u32(len as u32))),
            framed(&call(xid, 1, |w| w.opaque(b"after"))),
        ];
        stream.write_all(&calls.concat()).unwrap();
        check_echo(&read_record(&mut stream).unwrap(), xid, b"before");
        let reply = read_record(&mut stream).unwrap();
        check_echo(&reply, xid, &data[..len]);
        assert_eq!(reply[reply.len() - 4..], *b"end!", "{len}");
        assert_eq!(reply.len(), 28 + len.next_multiple_of(4) + 4);
        check_echo(&read_record(&mut stream).unwrap(), xid, b"after");
    }
}

#[test]
fn a_file_that_is_cut_short_on_the_way_leaves_the_record_whole() {
    let server = simple();
    let mut stream = connect(&server);
    for (xid, len) in [4096u32, 70_001, 1_000_000, 500_000].into_iter().enumerate() {
        let xid = xid as u32;
        stream.write_all(&framed(&call(xid, 8, |w| w.u32(len)))).unwrap();
        stream.write_all(&framed(&call(xid, 1, |w| w.opaque(b"after")))).unwrap();
        let reply = read_record(&mut stream).unwrap();
        let len = len as usize;
        assert_eq!(
            (reply.len(), &reply[reply.len() - 4..]),
            (32 + len.next_multiple_of(4), &b"end!"[..])
        );
        assert!(reply[28..28 + len / 4].iter().all(|byte| *byte == 0xee), "newer data may show");
        check_echo(&read_record(&mut stream).unwrap(), xid, b"after");
    }
}

#[test]
fn whoever_takes_no_pages_holds_few_and_loses_them_with_the_connection() {
    let server = simple();
    let deaf = connect(&server);
    for xid in 0..40 {
        (&deaf).write_all(&framed(&call(xid, 7, |w| w.u32(1_000_000)))).unwrap();
    }
    // All pipes are taken, and others are served all the same.
    let taken = |n| {
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let free: Vec<_> = std::iter::from_fn(|| server.page_pool.take(0, 4096)).collect();
            free.len() == n
        })
    };
    assert!(taken(0));
    let mut other = connect(&server);
    for xid in 0..3 {
        other.write_all(&framed(&call(xid, 7, |w| w.u32(300_000)))).unwrap();
        check_echo(&read_record(&mut other).unwrap(), xid, &page_bytes()[..300_000]);
    }
    drop(deaf);
    assert!(taken(PIPES), "they come back empty");
    other.write_all(&framed(&call(9, 7, |w| w.u32(300_000)))).unwrap();
    check_echo(&read_record(&mut other).unwrap(), 9, &page_bytes()[..300_000]);
}

#[test]
fn pipelined_calls_of_every_size_all_come_back() {
    let server = simple();
    let mut stream = connect(&server);
    let mut reader = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for xid in 0..600u32 {
            let data = pattern((xid as usize * 911) % 70_000, xid as usize);
            stream.write_all(&framed(&call(xid, 1 + xid % 2, |w| w.opaque(&data)))).unwrap();
        }
        stream
    });
    let mut seen = [false; 600];
    for _ in 0..seen.len() {
        let reply = read_record(&mut reader).unwrap();
        let xid = u32::from_be_bytes(reply[..4].try_into().unwrap());
        check_echo(&reply, xid, &pattern((xid as usize * 911) % 70_000, xid as usize));
        assert!(!std::mem::replace(&mut seen[xid as usize], true), "one reply for each call");
    }
    drop(writer.join().unwrap());
    every_buffer_comes_back(&server);
}

#[test]
fn byte_by_byte_and_many_fragments() {
    let server = simple();
    let mut stream = connect(&server);
    let message = call(5, 1, |w| w.opaque(b"slow"));
    for byte in framed(&message) {
        stream.write_all(&[byte]).unwrap();
    }
    check_echo(&read_record(&mut stream).unwrap(), 5, b"slow");
    let mut fragments = Vec::new();
    for chunk in message.chunks(3) {
        fragments.extend_from_slice(&(chunk.len() as u32).to_be_bytes());
        fragments.extend_from_slice(chunk);
    }
    fragments.extend_from_slice(&FragmentHeader::single(0));
    stream.write_all(&fragments).unwrap();
    check_echo(&read_record(&mut stream).unwrap(), 5, b"slow");
}

#[test]
fn a_peer_that_does_not_read_hurts_only_itself() {
    let server = simple();
    let mut deaf = connect(&server);
    deaf.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // Ask for far more than sockets and limits hold; the server must stop reading.
    let ask = framed(&call(1, 3, |w| w.u32(1 << 20)));
    let mut accepted = 0;
    while accepted < 200_000 && deaf.write_all(&ask).is_ok() {
        accepted += 1;
    }
    assert!(accepted < 200_000, "the server stopped reading");
    let mut other = connect(&server);
    other.write_all(&framed(&call(9, 1, |w| w.opaque(b"fine")))).unwrap();
    check_echo(&read_record(&mut other).unwrap(), 9, b"fine");
}

#[test]
fn bug_one_peer_could_bind_the_memory_of_all_with_reads_under_way() {
    // Only replies that were ready counted: a hundred reads, begun at once, each held a buffer of its own.
    let server = simple();
    let mut greedy = connect(&server);
    for xid in 0..100 {
        greedy.write_all(&framed(&call(xid, 4, |w| w.u32(1 << 20)))).unwrap();
    }
    let start = Instant::now();
    while server.endless.load(Ordering::SeqCst) < 8 && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(200));
    // A quarter of the pool, and fewer than asked for.
    let (begun, bytes) =
        (server.endless.load(Ordering::SeqCst), server.pool.stats().total[3] << 20);
    assert!((1..=8).contains(&begun) && begun << 20 <= bytes / 4 + (1 << 20), "{begun} of {bytes}");
    let mut other = connect(&server);
    other.write_all(&framed(&call(9, 1, |w| w.opaque(b"fine")))).unwrap();
    check_echo(&read_record(&mut other).unwrap(), 9, b"fine");
}

#[test]
fn bug_a_peer_that_trickled_bytes_held_its_buffer_for_ever() {
    let settings = StreamSettings { stall_timeout: Duration::from_secs(1), ..Default::default() };
    let server = serve(settings, ConnectionLimits::new(10, 0, 10));
    let mut stream = connect(&server);
    let whole = framed(&call(1, 1, |w| w.opaque(&pattern(100_000, 0))));
    stream.write_all(&whole[..50_000]).unwrap();
    let start = Instant::now();
    let ended = whole[50_000..].iter().any(|byte| {
        std::thread::sleep(Duration::from_millis(100));
        assert!(start.elapsed() < Duration::from_secs(15), "still connected");
        stream.write_all(&[*byte]).is_err()
    });
    assert!(ended && start.elapsed() > Duration::from_secs(3));
    assert_eq!(server.pool.stats().free, server.pool.stats().total);
}

#[test]
fn bug_a_deaf_peer_could_bind_a_buffer_with_every_byte() {
    // Short data in long buffers hardly counted, so that replies nobody took bound the whole pool.
    let server = simple();
    let mut deaf = connect(&server);
    deaf.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let ask: Vec<u8> = (0..100).flat_map(|xid| framed(&call(xid, 5, |w| w.u32(1 << 20)))).collect();
    let mut batches = 0;
    while batches < 5000 && deaf.write_all(&ask).is_ok() {
        batches += 1;
        let stats = server.pool.stats();
        assert!(stats.free[3] >= stats.total[3] / 2, "after {batches} batches");
    }
    assert!(batches < 5000, "the server stopped reading");
}

/// Clients that ask for far more than sockets and limits hold, and take nothing.
fn deaf(server: &Server, count: usize) -> Vec<TcpStream> {
    let ask: Vec<u8> = (0..40).flat_map(|xid| framed(&call(xid, 6, |w| w.u32(1 << 20)))).collect();
    let ask_all = |_| {
        let mut stream = connect(server);
        stream.write_all(&ask).unwrap();
        stream
    };
    (0..count).map(ask_all).collect()
}

/// The least that is free of the largest buffers while it settles.
fn least_free(server: &Server) -> usize {
    let look = |_| {
        std::thread::sleep(Duration::from_millis(5));
        server.pool.stats().free[3]
    };
    (0..100).map(look).min().unwrap_or(0)
}

#[test]
fn bug_deaf_peers_together_bound_the_memory_of_all() {
    let stall_timeout_starved = Duration::from_secs(1);
    let settings = StreamSettings { stall_timeout_starved, ..Default::default() };
    let server = serve(settings, ConnectionLimits::new(100, 0, 100));
    let deaf = deaf(&server, 12);
    let total = server.pool.stats().total[3];
    let free = least_free(&server);
    assert!(free >= total / 4 && free < total, "{free} of {total}");
    let mut other = connect(&server);
    // What needs no buffer does not wait,
    other.write_all(&framed(&call(8, 1, |w| w.opaque(b"fine")))).unwrap();
    check_echo(&read_record(&mut other).unwrap(), 8, b"fine");
    // and what needs one does not wait for long, in both directions.
    let start = Instant::now();
    other.write_all(&framed(&call(9, 6, |w| w.u32(1 << 20)))).unwrap();
    let reply = read_record(&mut other).unwrap();
    assert_eq!((reply[..4].to_vec(), reply.len()), (vec![0, 0, 0, 9], 28 + (1 << 20)));
    let data = pattern(1 << 20, 3);
    other.write_all(&framed(&call(10, 1, |w| w.opaque(&data)))).unwrap();
    check_echo(&read_record(&mut other).unwrap(), 10, &data);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    drop(deaf);
    every_buffer_comes_back(&server);
}

#[test]
fn bug_records_that_stopped_half_way_bound_the_memory_of_all() {
    let stall_timeout_starved = Duration::from_secs(1);
    let settings = StreamSettings { stall_timeout_starved, ..Default::default() };
    let server = serve(settings, ConnectionLimits::new(100, 0, 100));
    let whole = framed(&call(1, 1, |w| w.opaque(&pattern(1 << 20, 0))));
    let begin = |_| {
        let mut stream = connect(&server);
        stream.write_all(&whole[..1000]).unwrap();
        stream
    };
    let halves: Vec<_> = (0..40).map(begin).collect();
    let total = server.pool.stats().total[3];
    let free = least_free(&server);
    assert!(free >= total / 4 && free < total, "{free} of {total}");
    let start = Instant::now();
    let mut other = connect(&server);
    let data = pattern(1 << 20, 3);
    other.write_all(&framed(&call(10, 1, |w| w.opaque(&data)))).unwrap();
    check_echo(&read_record(&mut other).unwrap(), 10, &data);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    drop(halves);
    every_buffer_comes_back(&server);
}

#[test]
fn bug_a_stream_that_waited_for_another_size_swallowed_the_wake_up() {
    let server = simple();
    let take = |bytes: usize| std::iter::from_fn(|| server.pool.take(bytes)).collect::<Vec<_>>();
    let large = take(1 << 20);
    let start = Instant::now();
    let mut first = connect(&server);
    let data = pattern(1 << 20, 5);
    first.write_all(&framed(&call(1, 1, |w| w.opaque(&data)))[..2000]).unwrap();
    for xid in 0..20 {
        let mut small = take(70_000);
        let mut second = connect(&server);
        let data = pattern(70_000, xid);
        second.write_all(&framed(&call(xid as u32, 1, |w| w.opaque(&data)))).unwrap();
        // It waits by now, behind the other. Once a second all streams look again by themselves.
        std::thread::sleep(Duration::from_millis(20));
        drop(small.pop());
        check_echo(&read_record(&mut second).unwrap(), xid as u32, &data);
    }
    assert!(start.elapsed() < Duration::from_secs(7), "{:?}", start.elapsed());
    drop(large);
    first.write_all(&framed(&call(1, 1, |w| w.opaque(&data)))[2000..]).unwrap();
    check_echo(&read_record(&mut first).unwrap(), 1, &data);
    every_buffer_comes_back(&server);
}

#[test]
fn errors_keep_the_connection() {
    let server = simple();
    let mut stream = connect(&server);
    let mut old = call(1, 1, |w| w.opaque(b""));
    old[11] = 3;
    stream.write_all(&framed(&old)).unwrap();
    let reply = read_record(&mut stream).unwrap();
    assert_eq!(reply[8..], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2], "RPC_MISMATCH 2..2");
    let mut flavored = call(2, 1, |w| w.opaque(b""));
    flavored[27] = 99;
    stream.write_all(&framed(&flavored)).unwrap();
    let reply = read_record(&mut stream).unwrap();
    assert_eq!(reply[8..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1], "AUTH_ERROR, AUTH_BADCRED");
    stream.write_all(&framed(&call(3, 77, |_| {}))).unwrap();
    assert_eq!(read_record(&mut stream).unwrap()[20..24], [0, 0, 0, 3], "PROC_UNAVAIL");
    stream.write_all(&framed(b"xy")).unwrap();
    stream.write_all(&framed(&call(4, 1, |w| w.opaque(b"ok")))).unwrap();
    check_echo(&read_record(&mut stream).unwrap(), 4, b"ok");
}

#[test]
fn garbage_and_endless_records_end_their_connection_only() {
    let server = simple();
    let mut endless = connect(&server);
    endless.write_all(&[0xff; 4]).unwrap();
    assert_eq!(endless.read(&mut [0; 16]).unwrap_or(0), 0, "closed");
    let mut garbage = connect(&server);
    for _ in 0..40 {
        if garbage.write_all(&framed(&[9; 40])).is_err() {
            break;
        }
    }
    assert_eq!(garbage.read(&mut [0; 16]).unwrap_or(0), 0, "closed");
    let mut other = connect(&server);
    other.write_all(&framed(&call(9, 1, |w| w.opaque(b"fine")))).unwrap();
    check_echo(&read_record(&mut other).unwrap(), 9, b"fine");
}

#[test]
fn a_peer_that_stops_mid_record_is_hung_up() {
    let settings = StreamSettings { stall_timeout: Duration::from_secs(1), ..Default::default() };
    let server = serve(settings, ConnectionLimits::new(10, 0, 10));
    let mut stream = connect(&server);
    let whole = framed(&call(1, 1, |w| w.opaque(&pattern(100_000, 0))));
    stream.write_all(&whole[..50_000]).unwrap();
    let start = Instant::now();
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0, "closed");
    assert!(start.elapsed() < Duration::from_secs(15));
    every_buffer_comes_back(&server);
}

#[test]
fn a_connection_without_calls_ends_after_the_idle_timeout_and_one_with_calls_does_not() {
    let idle_timeout = Some(Duration::from_secs(1));
    let settings = StreamSettings { idle_timeout, ..Default::default() };
    let server = serve(settings, ConnectionLimits::new(10, 0, 10));
    let mut idle = connect(&server);
    let mut waiting = connect(&server);
    idle.write_all(&framed(&call(1, 1, |w| w.opaque(b"a")))).unwrap();
    check_echo(&read_record(&mut idle).unwrap(), 1, b"a");
    // This call is never done.
    waiting.write_all(&framed(&call(2, 4, |w| w.u32(0)))).unwrap();
    let start = Instant::now();
    assert_eq!(idle.read(&mut [0; 16]).unwrap_or(0), 0, "closed");
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    waiting.write_all(&framed(&call(3, 1, |w| w.opaque(b"b")))).unwrap();
    check_echo(&read_record(&mut waiting).unwrap(), 3, b"b");
}

#[test]
fn connection_limits_hold() {
    let server = serve(StreamSettings::default(), ConnectionLimits::new(10, 0, 2));
    let mut first = connect(&server);
    let mut second = connect(&server);
    for stream in [&mut first, &mut second] {
        stream.write_all(&framed(&call(1, 1, |w| w.opaque(b"a")))).unwrap();
        check_echo(&read_record(stream).unwrap(), 1, b"a");
    }
    let mut third = connect(&server);
    assert_eq!(third.read(&mut [0; 1]).unwrap_or(0), 0, "refused");
    drop(first);
    // The server needs a moment to see that the first has gone.
    let again = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let mut stream = connect(&server);
        stream.write_all(&framed(&call(1, 1, |w| w.opaque(b"a")))).is_ok()
            && read_record(&mut stream).is_ok()
    });
    assert!(again);
}

#[test]
fn drain_finishes_what_is_under_way() {
    let server = simple();
    let mut stream = connect(&server);
    for xid in 0..20 {
        stream.write_all(&framed(&call(xid, 2, |w| w.opaque(&pattern(50_000, 1))))).unwrap();
    }
    let first = read_record(&mut stream).unwrap();
    assert_eq!(first.len(), 24 + 4 + 50_000 + 4);
    let done = server.lane.drain(Duration::from_secs(10)).unwrap();
    while let Ok(reply) = read_record(&mut stream) {
        assert_eq!(reply.len(), first.len(), "replies are whole");
    }
    assert!(done.blocking_recv().is_ok());
    server.lane.join();
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens any more");
}

#[test]
fn half_closed_peers_get_their_replies() {
    let server = simple();
    let mut stream = connect(&server);
    for xid in 0..5 {
        stream.write_all(&framed(&call(xid, 2, |w| w.opaque(b"last words")))).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let replies = std::iter::from_fn(|| read_record(&mut stream).ok()).count();
    assert_eq!(replies, 5);
}
