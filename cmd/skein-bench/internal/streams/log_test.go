package streams

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
)

// TestMain makes the test binary a NATS server when the bench starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "nats-server" {
		os.Exit(serve(os.Args[3]))
	}
	m.Run()
}

func serve(options string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var opts programs.NATSOptions
	if json.Unmarshal([]byte(options), &opts) != nil || programs.ServeNATS(ctx, opts) != nil {
		return 1
	}
	return 0
}

func newBench(t *testing.T) *measure.Bench {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opts := measure.Options{Self: self, Runs: 1, Time: 100 * time.Millisecond, LogBytes: 1_000_000, Quick: true, Progress: t.Output()}
	return &measure.Bench{Opts: opts, Dir: t.TempDir(), Report: &measure.Report{}}
}

// TestKilledLeader demands that all readers get the same messages in order, among them all acknowledged ones, although the leader
// is killed meanwhile.
func TestKilledLeader(t *testing.T) {
	ctx := t.Context()
	servers, err := programs.StartNATS(ctx, newBench(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, w := range ways {
		// The context is not that of the subtest, with which the restarted server would end.
		t.Run(w.name, func(t *testing.T) { killLeader(ctx, t, servers, w) })
	}
}

func killLeader(ctx context.Context, t *testing.T, servers *programs.NATS, w way) {
	t.Helper()
	const readers, writers, each = 3, 4, 25
	s, err := newStream(ctx, servers, w.republished)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.remove(ctx); err != nil {
			t.Error(err)
		}
	}()
	leader, err := s.leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got [readers][]time.Time // the index is the sequence - 1
	rs, err := s.read(ctx, w, readers, func(reader int, seq uint64, body []byte) {
		if got[reader] = append(got[reader], sentAt(body)); len(got[reader]) != int(seq) {
			t.Errorf("reader %d has %d messages and gets %d", reader, len(got[reader])-1, seq)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var acked sync.Map // times of sending by sequence
	write := func() {
		var wg sync.WaitGroup
		for i, body := range newBodies(writers) {
			wg.Go(func() {
				for range each {
					seq, err := s.insist(ctx, leader+1+i%2, body)
					if err != nil {
						t.Error(err)
						return
					}
					acked.Store(seq, sentAt(body))
				}
			})
		}
		wg.Wait()
	}
	write()
	if err := servers.Kill(leader); err != nil {
		t.Fatal(err)
	}
	write()
	if err := servers.Restart(ctx, leader); err != nil {
		t.Fatal(err)
	}
	if err := rs.await(ctx, s.last.Load()); err != nil {
		t.Fatal(err)
	}
	rs.close()
	n := 0
	acked.Range(func(seq, at any) bool {
		for i := range got {
			if have := got[i][seq.(uint64)-1]; !have.Equal(at.(time.Time)) {
				t.Errorf("reader %d: message %d is of %v, not %v", i, seq, have, at)
			}
		}
		n++
		return true
	})
	if n != 2*writers*each {
		t.Errorf("%d acknowledged", n)
	}
}

// TestLog demands that every row has a figure of every way.
func TestLog(t *testing.T) {
	b := newBench(t)
	if err := Log(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, row := range b.Report.Rows {
		for _, s := range row.Series {
			if len(s.Values) != 1 {
				t.Errorf("%s: %s has %v", row.ID, s.Name, s.Values)
			}
		}
	}
	if len(b.Report.Rows) == 0 {
		t.Error("no rows")
	}
}
