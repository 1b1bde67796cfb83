package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	natsserver "github.com/skein-feed/skein/events/embedded"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// oldLog is a data directory with a log that was written from an hour and a half ago until now.
// Nothing of the log is archived or folded.
type oldLog struct {
	dir string
	// acked has all events of the log.
	acked ackedCall
	// createdAt is when the directory was written.
	createdAt time.Time
	// envelopeCount is the number of envelopes, and envelopes are all of them as a reader gets
	// them.
	envelopeCount int
	envelopes     []*events.Envelope
	// rememberedNumbers are the numbers of envelopes whose event ids are within the horizon, and
	// expiredNumbers of envelopes whose event ids are before it.
	rememberedNumbers, expiredNumbers []int
}

// oldEvents returns the events of the n-th envelope of an old log: a follow, a play with an event
// id, and 10 kB of bulk, so that the log has several files and archiving takes a moment.
func oldEvents(n int) []*skeinv1.Event {
	bulk := &skeinv1.Served{UserId: fmt.Sprint("old", n)}
	for i := range 100 {
		bulk.ItemIds = append(bulk.ItemIds, fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("x", 100)))
	}
	return []*skeinv1.Event{userFollowed(fmt.Sprint("old", n), "star"), oldPlay(n), {Kind: &skeinv1.Event_Served{Served: bulk}}}
}

// oldPlay returns the play of the n-th envelope.
func oldPlay(n int) *skeinv1.Event {
	return &skeinv1.Event{
		EventId: fmt.Sprint("play", n),
		Kind:    &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: fmt.Sprint("old", n), ItemId: "old-film"}},
	}
}

// writeOldLog writes an old log. Many of its envelopes are from 12 to 15.5 minutes ago. In the
// minutes after the log was written, the beginning of the horizon, 15 minutes ago, moves over them,
// so that one old envelope after the other may be trimmed.
func writeOldLog(t *testing.T) *oldLog {
	t.Helper()
	o := &oldLog{dir: t.TempDir(), createdAt: time.Now()}

	// The embedded server starts one clock for the whole process with the first log. That clock
	// must not be the fake clock of the bubble, so open a log outside first.
	outside, err := eventlog.Open(t.Context(), eventlog.Config{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close(context.Background())
	synctest.Test(t, func(t *testing.T) {
		// In the bubble, waiting takes no time.
		waitUntil := func(before time.Duration) { <-time.After(time.Until(o.createdAt.Add(-before))) }
		waitUntil(95 * time.Minute)
		log, err := eventlog.Open(t.Context(), eventlog.Config{Dir: filepath.Join(o.dir, service.LogDir)})
		if err != nil {
			t.Fatal(err)
		}
		publisher, err := log.NewPublisher(eventlog.PublisherOptions{})
		if err != nil {
			t.Fatal(err)
		}

		write := func(from, to, interval time.Duration) (numbers []int) {
			for at := from; at > to; at -= interval {
				waitUntil(at)
				n := o.envelopeCount
				res, err := publisher.Publish(context.Background(), oldEvents(n), eventlog.PublishOptions{})
				if err != nil || res.Position.Seq != uint64(n)+1 {
					t.Fatalf("envelope %d is at %v: %v", n, res, err)
				}
				o.acked.events, o.envelopeCount = append(o.acked.events, oldEvents(n)...), n+1
				numbers = append(numbers, n)
			}
			return numbers
		}

		o.expiredNumbers = write(90*time.Minute, 16*time.Minute, 30*time.Second)
		write(15*time.Minute+30*time.Second, 12*time.Minute, time.Second/2)
		o.rememberedNumbers = write(8*time.Minute, time.Minute, time.Minute)
		if err := errors.Join(publisher.Close(context.Background()), log.Close(context.Background())); err != nil {
			t.Fatal(err)
		}
	})
	return o
}

// newCheckedOldLog writes an old log, and reads all of it before a service runs on it.
func newCheckedOldLog(ctx context.Context, t *testing.T) *oldLog {
	t.Helper()
	o := writeOldLog(t) //nolint:contextcheck // the bubble has a context of its own
	if end, first := o.checkComplete(ctx, t, o.dir); end != 0 || first != 1 {
		t.Fatalf("a log that nobody has served is archived up to %d, and begins at %d", end, first)
	}
	return o
}

// checkComplete reads the log of a killed service, archive and stream, in a copy. It checks that
// the log has the old envelopes and newer ones behind them, without a gap or a repetition. It
// returns up to which sequence the log is archived, and with which the stream begins.
func (o *oldLog) checkComplete(ctx context.Context, t *testing.T, data string) (archived, first uint64) {
	t.Helper()
	log, err := eventlog.Open(ctx, eventlog.Config{Dir: filepath.Join(data, service.LogDir)})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close(context.WithoutCancel(ctx))

	archiveBucket, err := bucket.NewDir(filepath.Join(data, "archive"))
	if err != nil {
		t.Fatal(err)
	}
	logArchive, err := archive.Open(ctx, archiveBucket, log.ID())
	if err != nil {
		t.Fatal(err)
	}
	log.SetArchive(logArchive)
	if err := logArchive.Check(ctx, nil); err != nil {
		t.Error(err)
	}

	head, err := log.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	archived, first = logArchive.End().Seq, head.First
	if first > 1 && first > logArchive.End().WarmSeq {
		t.Errorf("the stream begins at %d, a reader that continues at the end of the archive needs %d", first, logArchive.End().WarmSeq)
	}

	envs := readLog(ctx, t, log)
	if o.envelopes == nil {
		o.envelopes = envs
	}
	for i, env := range envs {
		if env.Seq() != uint64(i)+1 {
			t.Fatalf("sequence %d comes after %d, the archive ends at %d, the stream begins at %d", env.Seq(), i, archived, first)
		}
		if i < len(o.envelopes) && !sameEvents(env, o.envelopes[i]) {
			t.Fatalf("envelope %d was\n%+v, is\n%+v", i+1, o.envelopes[i], env)
		}
	}

	if len(envs) < o.envelopeCount {
		t.Fatalf("%d envelopes of %d are left", len(envs), o.envelopeCount)
	}
	return archived, first
}

// sameEvents compares those parts of envelopes that do not depend on whether they come from the
// stream or the archive.
func sameEvents(a, b *events.Envelope) bool {
	if a.Cursor.LastTime != b.Cursor.LastTime || len(a.Events) != len(b.Events) {
		return false
	}
	for i := range a.Events {
		x, y := &a.Events[i], &b.Events[i]
		if x.Seq != y.Seq || x.Slot != y.Slot || x.Kind != y.Kind || x.Time != y.Time || x.User != y.User || x.Peer != y.Peer ||
			x.Item != y.Item || strings.Join(x.Items, " ") != strings.Join(y.Items, " ") {
			return false
		}
	}
	return true
}

// publishUntilDone publishes follows and plays until the context ends, and returns the calls that
// were acknowledged.
func publishUntilDone(ctx context.Context, api *command.Client) (calls []ackedCall) {
	for n := 0; ctx.Err() == nil; n++ {
		follow := userFollowed(fmt.Sprint("new", n), "star")
		follow.EventId = fmt.Sprint("new", n)
		evs := []*skeinv1.Event{follow, {
			EventId: fmt.Sprint("new", n),
			Kind:    &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: fmt.Sprint("new", n), ItemId: "new-film"}},
		}}
		// The event ids let the writer send the events again until they are acknowledged.
		_ = eventually(ctx, func(ctx context.Context) error {
			res, err := api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
			if err == nil {
				calls = append(calls, ackedCall{position: res.Msg.GetPosition(), events: evs})
			}
			return err
		})
	}
	return calls
}

// waitUntilTrimmed waits until the stream no longer begins with its first envelope.
func waitUntilTrimmed(ctx context.Context, t *testing.T, api *command.Client) {
	t.Helper()
	waitUntil(ctx, t, func(ctx context.Context) error {
		status, err := getStatus(ctx, api)
		if err == nil && status.GetLog().GetFirstSequence() <= 1 {
			err = fmt.Errorf("nothing was trimmed: %v", status.GetLog())
		}
		return err
	})
}

// checkEventIDHorizon publishes plays again. Those whose event ids are within the horizon must not
// be counted again, and expired ones must be.
func (o *oldLog) checkEventIDHorizon(ctx context.Context, t *testing.T, api *command.Client) {
	t.Helper()
	// republishAndCount publishes the plays with these numbers again, and returns how many plays
	// are counted.
	republishAndCount := func(numbers ...int) int64 {
		var evs []*skeinv1.Event
		for _, n := range numbers {
			evs = append(evs, oldPlay(n))
		}

		var position string
		if len(evs) > 0 {
			res, err := api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
			if err != nil {
				t.Fatal(err)
			}
			position = res.Msg.GetPosition()
		}

		res, err := api.Counters().BatchGetCounters(ctx, connect.NewRequest(&skeinv1.BatchGetCountersRequest{
			AtLeast: position, Keys: []*skeinv1.CounterKey{itemKey("old-film")},
		}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg.GetCounters()[0].GetPlayCount()
	}

	want := int64(o.envelopeCount)
	if n := republishAndCount(); n != want {
		t.Errorf("%d plays of %d are counted", n, want)
	}
	if n := republishAndCount(o.rememberedNumbers...); n != want {
		t.Errorf("%d plays are counted, %d were made: event ids of the horizon are forgotten", n, want)
	}
	if n := republishAndCount(o.expiredNumbers[len(o.expiredNumbers)-3:]...); n != want+3 {
		t.Errorf("%d plays are counted, of %d old ones and 3 that are new facts by now", n, want)
	}
}

// trimRound is one round of the test: a service is started on a copy of the log, killed, and
// started again.
type trimRound struct {
	log  *oldLog
	dir  string
	addr string
}

// newServer returns a service that archives and trims as early as it may. It does not audit, which
// would only take time.
func (r *trimRound) newServer(t *testing.T) *serverProcess {
	return &serverProcess{t: t, dir: r.dir, addr: r.addr, flags: []string{"--archive-every", "50ms", "--log-retention", "1s", "--audit-share", "0"}}
}

// TestServerKilledDuringTrimLosesNothing kills the service before, during and after it archives and
// trims a log that is older than the horizon. After each kill, the archive and the stream together
// must be the complete log, without a gap. A service that is started on them must trim, must have
// all that was acknowledged and know the event ids of the horizon, and each of its stores must
// equal the log.
func TestServerKilledDuringTrimLosesNothing(t *testing.T) {
	t.Parallel()
	kills := 20
	if testing.Short() {
		kills = 3
	}

	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	o := newCheckedOldLog(ctx, t)
	addr, timeToTrim := o.measureTimeToTrim(ctx, t)
	var killsBeforeArchive, killsBeforeTrim, killsAfterTrim int
	for n := range kills {
		// The envelopes of the last 8 minutes must be within the horizon until the end of a round.
		if time.Since(o.createdAt) > 3*time.Minute {
			o = newCheckedOldLog(ctx, t)
		}

		r := trimRound{log: o, addr: addr, dir: t.TempDir()}
		// A third of the kills come at any moment until shortly after the first trim, a third after
		// the first segment was sealed, when trimming comes next, and a third after the first trim,
		// while one envelope after the other is trimmed.
		point := killPoint{delay: time.Duration((float64(n) + rng.Float64()) / float64(kills) * 1.5 * float64(timeToTrim))}
		switch n % 3 {
		case 1:
			point = killPoint{delay: time.Duration(rng.IntN(20_000)) * time.Microsecond, afterSeal: true}
		case 2:
			point = killPoint{delay: time.Duration(rng.IntN(200_000)) * time.Microsecond, afterTrim: true}
		}

		end, first := r.killAndCheck(ctx, t, point)
		switch {
		case end == 0:
			killsBeforeArchive++
		case first <= 1:
			killsBeforeTrim++
		default:
			killsAfterTrim++
		}
		if t.Failed() {
			t.Fatalf("round %d, killed %+v, archived up to %d, the stream began at %d", n, point, end, first)
		}
	}
	if killsAfterTrim == 0 {
		t.Error("no kill came after trimming")
	}
	t.Logf("first trimmed after %v; killed %d times before anything was archived, %d times before it was trimmed, %d times after",
		timeToTrim, killsBeforeArchive, killsBeforeTrim, killsAfterTrim)
}

// measureTimeToTrim runs the service without a kill. It returns the address of the service, which
// later rounds use again, and the time until it has trimmed.
func (o *oldLog) measureTimeToTrim(ctx context.Context, t *testing.T) (addr string, takes time.Duration) {
	t.Helper()
	r := trimRound{log: o, dir: t.TempDir()}
	r.copyLog(t)
	s := r.newServer(t)
	began := time.Now()
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	api := s.newClient()
	writing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { publishUntilDone(writing, api) })
	defer wg.Wait()
	defer stop()
	waitUntilTrimmed(ctx, t, api)
	return s.addr, time.Since(began)
}

// copyLog copies the old log into the data directory of the round.
func (r *trimRound) copyLog(t *testing.T) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(r.dir, "data"), os.DirFS(r.log.dir)); err != nil {
		t.Fatal(err)
	}
}

// killPoint is the moment of a kill: delay after the process was started, or after it has sealed
// the first segment, or has trimmed.
type killPoint struct {
	delay                time.Duration
	afterSeal, afterTrim bool
}

// killAndCheck runs one round. It returns up to which sequence the log was archived at the kill,
// and with which the stream began.
func (r *trimRound) killAndCheck(ctx context.Context, t *testing.T, point killPoint) (end, first uint64) {
	t.Helper()
	r.copyLog(t)
	data := filepath.Join(r.dir, "data")
	s := r.newServer(t)
	if err := s.launch(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { s.kill() }()
	api := s.newClient()
	writing, stop := context.WithCancel(ctx)
	defer stop()
	calls := make(chan []ackedCall, 1)
	go func() { calls <- publishUntilDone(writing, api) }()
	point.waitFor(ctx, t, api, data)
	s.kill()

	// Check a copy of what the killed process has left. CopyFS cannot copy its socket.
	if err := os.Remove(filepath.Join(data, service.LogDir, natsserver.SocketFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}

	killedCopy := filepath.Join(r.dir, "was")
	for _, part := range []string{service.LogDir, "archive"} {
		err := os.CopyFS(filepath.Join(killedCopy, part), os.DirFS(filepath.Join(data, part)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	end, first = r.log.checkComplete(ctx, t, killedCopy)

	// The service that continues must trim, and must have everything.
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	waitUntilTrimmed(ctx, t, api)

	stop()
	checkAcked(ctx, t, api, onlyFollows(append(<-calls, r.log.acked)))
	r.log.checkEventIDHorizon(ctx, t, api)
	checkStoresEqualLog(ctx, t, api)
	if out, err := exec.CommandContext(ctx, "skein", "replay", "archive", "check", "--data", data).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return end, first
}

// waitFor waits until the moment of the kill.
func (k killPoint) waitFor(ctx context.Context, t *testing.T, api *command.Client, data string) {
	t.Helper()
	manifest := filepath.Join(data, "archive", filepath.FromSlash(archive.ManifestName))
	for k.afterSeal && ctx.Err() == nil {
		if _, err := os.Stat(manifest); err == nil {
			break
		}
		<-time.After(100 * time.Microsecond)
	}
	if k.afterTrim {
		waitUntilTrimmed(ctx, t, api)
	}
	<-time.After(k.delay)
}
