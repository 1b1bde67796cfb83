package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	// envelopeCount is the number of envelopes.
	envelopeCount int
	// envelopes are all envelopes as the first reader got them, before any service ran.
	envelopes []*events.Envelope
	// rememberedNumbers are the numbers of envelopes whose event ids are within the horizon.
	rememberedNumbers []int
	// expiredNumbers are the numbers of envelopes whose event ids are older than the horizon.
	expiredNumbers []int
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
		// In the bubble, waiting takes no time. The clock of the bubble begins in the year 2000.
		waitUntilAge := func(age time.Duration) { <-time.After(time.Until(o.createdAt.Add(-age))) }
		waitUntilAge(95 * time.Minute)
		log, err := eventlog.Open(t.Context(), eventlog.Config{Dir: filepath.Join(o.dir, service.LogDir)})
		if err != nil {
			t.Fatal(err)
		}
		publisher, err := log.NewPublisher(eventlog.PublisherOptions{})
		if err != nil {
			t.Fatal(err)
		}

		// writeEnvelopes writes envelopes at an interval. The first has the age oldest, and all are
		// older than newest. It returns their numbers.
		writeEnvelopes := func(oldest, newest, interval time.Duration) (numbers []int) {
			for age := oldest; age > newest; age -= interval {
				waitUntilAge(age)
				n := o.envelopeCount
				evs := oldEvents(n)
				res, err := publisher.Publish(context.Background(), evs, eventlog.PublishOptions{})
				if err != nil || res.Position.Seq != uint64(n)+1 {
					t.Fatalf("publish envelope %d: got %v, %v, want the sequence %d", n, res, err, n+1)
				}
				o.acked.events = append(o.acked.events, evs...)
				o.envelopeCount++
				numbers = append(numbers, n)
			}
			return numbers
		}

		o.expiredNumbers = writeEnvelopes(90*time.Minute, 16*time.Minute, 30*time.Second)
		writeEnvelopes(15*time.Minute+30*time.Second, 12*time.Minute, time.Second/2)
		o.rememberedNumbers = writeEnvelopes(8*time.Minute, time.Minute, time.Minute)
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
	archivedSeq, firstSeq := o.checkComplete(ctx, t, o.dir)
	if archivedSeq != 0 || firstSeq != 1 {
		t.Fatalf("a log before any service: got archived up to %d and the beginning %d, want 0 and 1", archivedSeq, firstSeq)
	}
	return o
}

// checkComplete reads the log of a killed service, archive and stream, in a copy. It checks that
// the log has the old envelopes and newer ones behind them, without a gap or a repetition. It
// returns up to which sequence the log is archived, and with which the stream begins.
func (o *oldLog) checkComplete(ctx context.Context, t *testing.T, data string) (archivedSeq, firstSeq uint64) {
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
		t.Errorf("check of the archive: got %v, want no error", err)
	}

	// A reader that continues at the end of the archive also needs some envelopes before it.
	head, err := log.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	archivedSeq = logArchive.End().Seq
	firstSeq = head.First
	if warmSeq := logArchive.End().WarmSeq; firstSeq > 1 && firstSeq > warmSeq {
		t.Errorf("got a stream that begins at %d, want at most %d, where readers at the end of the archive begin", firstSeq, warmSeq)
	}

	envs := readLog(ctx, t, log)
	if o.envelopes == nil {
		o.envelopes = envs
	}
	for i, env := range envs {
		if want := uint64(i) + 1; env.Seq() != want {
			t.Fatalf("got sequence %d, want %d; the archive ends at %d, the stream begins at %d", env.Seq(), want, archivedSeq, firstSeq)
		}
		if i < len(o.envelopes) && !sameEvents(env, o.envelopes[i]) {
			t.Fatalf("envelope %d: got\n%+v, want\n%+v", i+1, env, o.envelopes[i])
		}
	}

	if len(envs) < o.envelopeCount {
		t.Fatalf("got %d envelopes, want at least %d", len(envs), o.envelopeCount)
	}
	return archivedSeq, firstSeq
}

// sameEvents compares those parts of envelopes that do not depend on whether they come from the
// stream or the archive.
func sameEvents(a, b *events.Envelope) bool {
	if a.Cursor.LastTime != b.Cursor.LastTime {
		return false
	}
	return slices.EqualFunc(a.Events, b.Events, func(x, y events.Event) bool {
		return x.Seq == y.Seq && x.Slot == y.Slot && x.Kind == y.Kind && x.Time == y.Time &&
			x.User == y.User && x.Peer == y.Peer && x.Item == y.Item && slices.Equal(x.Items, y.Items)
	})
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
			err = fmt.Errorf("got a log from which nothing was trimmed: %v", status.GetLog())
		}
		return err
	})
}

// checkEventIDHorizon publishes plays again. Those whose event ids are within the horizon must not
// be counted again, and expired ones must be.
func (o *oldLog) checkEventIDHorizon(ctx context.Context, t *testing.T, api *command.Client) {
	t.Helper()
	// countPlays returns how many plays are counted at a position. An empty position means now.
	countPlays := func(position string) int64 {
		res, err := api.Counters().BatchGetCounters(ctx, connect.NewRequest(&skeinv1.BatchGetCountersRequest{
			AtLeast: position, Keys: []*skeinv1.CounterKey{itemKey("old-film")},
		}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg.GetCounters()[0].GetPlayCount()
	}
	// republishPlays publishes the plays of these envelopes again, and returns the position.
	republishPlays := func(numbers []int) (position string) {
		var evs []*skeinv1.Event
		for _, n := range numbers {
			evs = append(evs, oldPlay(n))
		}
		res, err := api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg.GetPosition()
	}

	want := int64(o.envelopeCount)
	if got := countPlays(""); got != want {
		t.Errorf("plays: got %d, want %d", got, want)
	}
	if got := countPlays(republishPlays(o.rememberedNumbers)); got != want {
		t.Errorf("plays after a repetition within the horizon: got %d, want %d", got, want)
	}

	// The service has forgotten expired event ids, so these plays are new facts.
	const expired = 3
	newest := o.expiredNumbers[len(o.expiredNumbers)-expired:]
	if got := countPlays(republishPlays(newest)); got != want+expired {
		t.Errorf("plays after a repetition of %d expired ones: got %d, want %d", expired, got, want+expired)
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
	return &serverProcess{t: t, dir: r.dir, addr: r.addr, flags: []string{
		"--archive-every", "50ms", "--log-retention", "1s", "--audit-share", "0",
	}}
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
	randomDelay := func(limit time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(limit))) }
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

		var point killPoint
		switch n % 3 {
		case 0:
			// Kill at any moment until shortly after the first trim. The moments of these kills are
			// spread evenly.
			share := (float64(n) + rng.Float64()) / float64(kills)
			point = killPoint{delay: time.Duration(share * 1.5 * float64(timeToTrim))}
		case 1:
			// Kill after the first segment was sealed, when trimming comes next.
			point = killPoint{afterSeal: true, delay: randomDelay(20 * time.Millisecond)}
		case 2:
			// Kill after the first trim, while one envelope after the other is trimmed.
			point = killPoint{afterTrim: true, delay: randomDelay(200 * time.Millisecond)}
		}

		r := trimRound{log: o, addr: addr, dir: t.TempDir()}
		archivedSeq, firstSeq := r.killAndCheck(ctx, t, point)
		switch {
		case archivedSeq == 0:
			killsBeforeArchive++
		case firstSeq <= 1:
			killsBeforeTrim++
		default:
			killsAfterTrim++
		}
		if t.Failed() {
			t.Fatalf("round %d, killed %+v, archived up to %d, the stream began at %d", n, point, archivedSeq, firstSeq)
		}
	}

	if killsAfterTrim == 0 {
		t.Error("got no kill after trimming, want at least one")
	}
	t.Logf("first trimmed after %v; killed %d times before anything was archived, %d times before it was trimmed, %d times after",
		timeToTrim, killsBeforeArchive, killsBeforeTrim, killsAfterTrim)
}

// measureTimeToTrim runs the service without a kill. It returns the address of the service, which
// later rounds use again, and the time until it has trimmed.
func (o *oldLog) measureTimeToTrim(ctx context.Context, t *testing.T) (addr string, timeToTrim time.Duration) {
	t.Helper()
	r := trimRound{log: o, dir: t.TempDir()}
	r.copyLog(t)
	s := r.newServer(t)
	began := time.Now()
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.kill()

	// Publish as in the other rounds, because that takes time too.
	api := s.newClient()
	publishCtx, stopPublishing := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { publishUntilDone(publishCtx, api) })
	defer wg.Wait()
	defer stopPublishing()

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

// killPoint is the moment of a kill. The delay begins when the process is launched, or with
// afterSeal, when it has sealed the first segment, or with afterTrim, when it has trimmed.
type killPoint struct {
	delay     time.Duration
	afterSeal bool
	afterTrim bool
}

// killAndCheck runs one round. It returns up to which sequence the log was archived at the kill,
// and with which the stream began.
func (r *trimRound) killAndCheck(ctx context.Context, t *testing.T, point killPoint) (archivedSeq, firstSeq uint64) {
	t.Helper()
	r.copyLog(t)
	data := filepath.Join(r.dir, "data")
	s := r.newServer(t)
	if err := s.launch(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { s.kill() }()

	api := s.newClient()
	publishCtx, stopPublishing := context.WithCancel(ctx)
	defer stopPublishing()
	ackedCalls := make(chan []ackedCall, 1)
	go func() { ackedCalls <- publishUntilDone(publishCtx, api) }()

	point.waitFor(ctx, t, api, data)
	s.kill()

	// Check a copy of what the killed process has left. CopyFS cannot copy its socket.
	socket := filepath.Join(data, service.LogDir, natsserver.SocketFile)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	killedCopy := filepath.Join(r.dir, "was")
	for _, part := range []string{service.LogDir, "archive"} {
		err := os.CopyFS(filepath.Join(killedCopy, part), os.DirFS(filepath.Join(data, part)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	archivedSeq, firstSeq = r.log.checkComplete(ctx, t, killedCopy)

	// The service that continues must trim, and must have everything.
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	waitUntilTrimmed(ctx, t, api)

	stopPublishing()
	checkAcked(ctx, t, api, onlyFollows(append(<-ackedCalls, r.log.acked)))
	r.log.checkEventIDHorizon(ctx, t, api)
	checkStoresEqualLog(ctx, t, api)
	out, err := exec.CommandContext(ctx, "skein", "replay", "archive", "check", "--data", data).CombinedOutput()
	if err != nil {
		t.Errorf("check of the archive: got %v, want no error: %s", err, out)
	}
	return archivedSeq, firstSeq
}

// waitFor waits until the moment of the kill.
func (k killPoint) waitFor(ctx context.Context, t *testing.T, api *command.Client, data string) {
	t.Helper()
	if k.afterSeal {
		// The first segment is sealed when the manifest of the archive names it.
		manifest := filepath.Join(data, "archive", filepath.FromSlash(archive.ManifestName))
		for ctx.Err() == nil {
			if _, err := os.Stat(manifest); err == nil {
				break
			}
			<-time.After(100 * time.Microsecond)
		}
	}
	if k.afterTrim {
		waitUntilTrimmed(ctx, t, api)
	}
	<-time.After(k.delay)
}
