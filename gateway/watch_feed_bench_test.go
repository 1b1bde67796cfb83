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

// BenchmarkQuietWatchers measures what 10 000 watchers of feeds cost while nothing happens that
// concerns them. Each has 50 followees, and 250 of them share a connection of HTTP/2. It reports
// bytes per watcher, and the share of one processor, including heartbeats: first in silence, and
// then while other owners create 100 pins per second. The clients, which send raw frames, are in
// the same process, so their cost is included.
func BenchmarkQuietWatchers(b *testing.B) {
	b.Run("open", func(b *testing.B) { benchmarkQuietWatchers(b, newWorld(b, withAllStores)) })
	b.Run("token", func(b *testing.B) {
		g := newGuarded(b, withAllStores, func(o *worldOptions) {
			o.Certificates = nil
			o.clientTLS = nil
		})
		benchmarkQuietWatchers(b, g.as(g.tokens["all"]), "authorization", "Bearer "+g.tokens["reader"])
	})
}

func benchmarkQuietWatchers(b *testing.B, w *world, header ...string) {
	const watchers, perConnection, followees = 10_000, 250, 50
	w.server.feed.Watchers.CountInterval = time.Second
	w.server.feed.Watchers.Pause = 200 * time.Millisecond

	// Ten readers per call of Publish have 500 events.
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

	before := liveMemory()
	for i := range watchers / perConnection {
		openWatchers(b, w, i*perConnection, perConnection, header)
	}
	budget := w.server.budgets.Streams[connectv1.FeedServiceWatchFeedProcedure]
	if n := budget.Used(); n != watchers {
		b.Fatalf("got %d watchers, want %d", n, watchers)
	}
	bytesPerWatcher := float64(liveMemory()-before) / watchers

	const silence = 3 * time.Second // The first heartbeats come in one burst.
	quietCPU := 0.0
	busyCPU := 0.0
	b.ResetTimer()
	for range b.N {
		quietCPU = measureCPU(func() { <-time.After(30*time.Second + silence) })
		busyCPU = measureCPU(func() {
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			for i := range 500 {
				<-ticker.C
				w.publish(pinned("stranger", "", fmt.Sprint(i)))
			}
		})
	}
	b.ReportMetric(bytesPerWatcher, "B/watcher")
	b.ReportMetric(quietCPU, "%cpu-quiet")
	b.ReportMetric(busyCPU, "%cpu-100-pins/s")
}

// openWatchers opens n watchers on a connection of their own, and waits for the first message of
// each. They watch the feeds of readers from number first on.
func openWatchers(b *testing.B, w *world, first, n int, header []string) {
	b.Helper()
	conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		b.Fatal(err)
	}
	if err := framer.WriteSettings(); err != nil {
		b.Fatal(err)
	}
	// The client never gives flow control credit again, so it gives enough for all messages.
	if err := framer.WriteWindowUpdate(0, 1<<30); err != nil {
		b.Fatal(err)
	}

	// The reader of the connection reports the first frame of each stream: true if it has a
	// message, and false if it ends the stream.
	accepted := make(chan bool, n)
	readerEnded := make(chan struct{})
	go func() {
		defer close(readerEnded)
		hasAnswer := map[uint32]bool{}
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return
			}
			data, ok := frame.(*http2.DataFrame)
			if ok && !hasAnswer[data.StreamID] {
				hasAnswer[data.StreamID] = true
				accepted <- !data.StreamEnded()
			}
		}
	}()
	b.Cleanup(func() {
		conn.Close()
		<-readerEnded
	})

	// Streams of clients have odd numbers. The body of each is an envelope of Connect, with the
	// length of the message in its last byte.
	head := h2HeadOf(connectv1.FeedServiceWatchFeedProcedure, "application/connect+proto", header...)
	for i := range n {
		msg, err := proto.Marshal(&skeinv1.WatchFeedRequest{ReaderId: fmt.Sprint("reader", first+i)})
		if err != nil {
			b.Fatal(err)
		}
		body := append([]byte{0, 0, 0, 0, byte(len(msg))}, msg...)
		stream := uint32(2*i + 1)
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true})
		if err == nil {
			err = framer.WriteData(stream, true, body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for range n {
		if !<-accepted {
			b.Fatal("a watcher was refused")
		}
	}
}

// liveMemory returns the bytes of live objects and of stacks. It leaves out the free space in the
// spans of the heap, which depends on earlier garbage, and varied by 10 MB and more.
func liveMemory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// measureCPU calls do, and returns how much of one processor the process used meanwhile, in
// percent.
func measureCPU(do func()) float64 {
	start := time.Now()
	cpuBefore := cpuTime()
	do()
	return 100 * float64(cpuTime()-cpuBefore) / float64(time.Since(start))
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
