package gateway

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// BenchmarkQuietWatchers reports what 10 000 watchers of feeds cost while nothing happens that
// concerns them, each with 50 followees, over HTTP/2 with 250 streams a connection: bytes a
// watcher, and the part of one processor, heartbeats included. In the second part, other owners pin
// 100 times a second. The clients are in the same process, as raw frames, and are counted, too.
func BenchmarkQuietWatchers(b *testing.B) {
	b.Run("open", func(b *testing.B) { benchmarkQuietWatchers(b, newWorld(b, withAllStores)) })
	b.Run("token", func(b *testing.B) {
		g := newGuarded(b, withAllStores, func(o *worldOptions) { o.Certificates, o.clientTLS = nil, nil })
		benchmarkQuietWatchers(b, g.as(g.tokens["all"]), "authorization", "Bearer "+g.tokens["reader"])
	})
}

func benchmarkQuietWatchers(b *testing.B, w *world, header ...string) {
	const watchers, a, followees = 10_000, 250, 50
	w.server.feed.Watchers.CountInterval, w.server.feed.Watchers.Pause = time.Second, 200*time.Millisecond
	at := ""
	for i := 0; i < watchers; i += 10 {
		var evs []*skeinv1.Event
		for j := range 10 {
			for k := range followees {
				evs = append(evs, follow(fmt.Sprint("reader", i+j), fmt.Sprint("owner", (i+j+k*k)%watchers)))
			}
		}
		at = w.publish(evs...)
	}
	w.caughtUp(at)
	before := memory()
	for c := range watchers / a {
		openWatchers(b, w, c*a, a, header)
	}
	taken := w.server.budgets.Streams[connectv1.FeedServiceWatchFeedProcedure]
	if n := taken.Used(); n != watchers {
		b.Fatalf("%d watchers are there", n)
	}
	held := float64(memory()-before) / watchers
	silence := 3 * time.Second // the first heartbeats come in one burst
	quiet, busy := 0.0, 0.0
	b.ResetTimer()
	for range b.N {
		quiet = used(func() { <-time.After(30*time.Second + silence) })
		busy = used(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := range 500 {
				<-tick.C
				w.publish(pinned("stranger", "", fmt.Sprint(i)))
			}
		})
	}
	b.ReportMetric(held, "B/watcher")
	b.ReportMetric(quiet, "%cpu-quiet")
	b.ReportMetric(busy, "%cpu-100-pins/s")
}

// openWatchers opens watchers on a connection of their own, and waits for the first message of
// each.
func openWatchers(b *testing.B, w *world, first, n int, header []string) {
	b.Helper()
	conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		b.Fatal(err)
	}
	if err := f.WriteSettings(); err != nil {
		b.Fatal(err)
	}
	if err := f.WriteWindowUpdate(0, 1<<30); err != nil {
		b.Fatal(err)
	}
	got, ended := make(chan bool, n), make(chan struct{})
	go func() {
		defer close(ended)
		answered := map[uint32]bool{}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if d, ok := frame.(*http2.DataFrame); ok && !answered[d.StreamID] {
				answered[d.StreamID] = true
				got <- !d.StreamEnded()
			}
		}
	}()
	b.Cleanup(func() { conn.Close(); <-ended })
	head := h2HeadOf(connectv1.FeedServiceWatchFeedProcedure, "application/connect+proto", header...)
	for i := range n {
		msg, err := proto.Marshal(&skeinv1.WatchFeedRequest{ReaderId: fmt.Sprint("reader", first+i)})
		if err != nil {
			b.Fatal(err)
		}
		body := append([]byte{0, 0, 0, 0, byte(len(msg))}, msg...)
		stream := uint32(2*i + 1)
		err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true})
		if err == nil {
			err = f.WriteData(stream, true, body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for range n {
		if !<-got {
			b.Fatal("a watcher was refused")
		}
	}
}

// memory returns the bytes of live objects and of stacks. Free room in the spans of the heap is
// left out: it depends on earlier garbage, and varied by 10 MB and more.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// used returns how much of one processor the process takes while something is done, in percent.
func used(do func()) float64 {
	start, before := time.Now(), cpuTime()
	do()
	return 100 * float64(cpuTime()-before) / float64(time.Since(start))
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
