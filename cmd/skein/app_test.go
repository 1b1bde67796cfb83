package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

// startApp runs the service inside the test on a data directory, and returns a client and what
// stops it.
func startApp(t *testing.T, dir string, logger *slog.Logger, options ...func(*service.Options)) (api *command.Client, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := service.Options{
		Log: eventlog.Config{Dir: filepath.Join(dir, service.LogDir)}, Dir: dir, Logger: logger,
		Memory: service.Memory{Cache: 16 << 20, Queries: 1 << 20},
	}
	for _, f := range options {
		f(&o)
	}
	a, err := service.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.Run(ctx, l, func() error { close(ready); return nil }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	api = (&command.ClientFlags{Server: l.Addr().String()}).Client()
	return api, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := a.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		api.HTTP.CloseIdleConnections()
	}
}

func publish(t *testing.T, api *command.Client, evs ...*skeinv1.Event) (position string) {
	t.Helper()
	res, err := api.Events().Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: evs, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetPosition()
}

// TestServiceKeepsEventsAndLeavesNoGoroutine closes a service and opens it again: the service must
// leave no goroutine behind, and must still have what was published.
func TestServiceKeepsEventsAndLeavesNoGoroutine(t *testing.T) {
	// What libraries start once for a process and never end.
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	api, stop := startApp(t, dir, logger)
	position := publish(t, api, userFollowed("ann", "bob"))
	stop()
	api, stop = startApp(t, dir, logger)
	defer stop()
	res, err := api.Graph().CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
		AtLeast: position,
		Pairs:   []*skeinv1.FollowPair{{UserId: "ann", Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: "bob"}}},
	}))
	if err != nil || res.Msg.GetKinds()[0] != skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT {
		t.Errorf("%v, %v", res, err)
	}
}

// lockedBuffer is what several goroutines may write and read.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written so far.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestFailedProjectionDoesNotStopTheService demands that a projection that cannot continue stops
// itself and not the process, and that the status says why.
func TestFailedProjectionDoesNotStopTheService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	api, stop := startApp(t, dir, slog.New(slog.DiscardHandler))
	publish(t, api, userFollowed("ann", "bob"))
	stop()
	if err := os.RemoveAll(filepath.Join(dir, service.LogDir)); err != nil { // the store is of a log that is gone
		t.Fatal(err)
	}
	var log lockedBuffer
	api, stop = startApp(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
	defer stop()
	res, err := api.Admin().GetStatus(t.Context(), connect.NewRequest(&skeinv1.GetStatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	p := res.Msg.GetProjections()[0]
	if p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_FAILED || !strings.Contains(p.GetError(), "another log") {
		t.Errorf("status: %v", p)
	}
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log: %s", log.String())
	}
}

// edgeFacts are the facts about one pair, for a computation of its own: the latest of the file, and
// all live ones.
type edgeFacts struct {
	history events.Micros
	live    []liveFact
}

type liveFact struct {
	follow bool
	// seq orders them; their times are the log's.
	at events.Micros
}

// since reports whether and since when the pair follows: history only where there is no live
// unfollow.
func (f edgeFacts) since() (events.Micros, bool) {
	began, ended := events.Micros(-1), false
	for _, l := range f.live {
		switch {
		case !l.follow:
			began, ended = -1, true
		case began < 0:
			began = l.at
		}
	}
	switch {
	case !ended && f.history > 0:
		return f.history, true
	case began >= 0:
		return began, true
	}
	return 0, false
}

// TestLiveEventsOverrideImportedHistory imports pieces of history in any order, each of them twice,
// between live follows and unfollows. The order must not matter: live events win over history, and
// elsewhere the latest event of the history wins.
func TestLiveEventsOverrideImportedHistory(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	api, stop := startApp(t, dir, slog.New(slog.DiscardHandler))
	defer stop()
	const users, pieces = 40, 6
	want := map[[2]string]edgeFacts{}
	var files []string
	for i := range pieces {
		path := filepath.Join(dir, fmt.Sprintf("piece%d.csv", i))
		var text strings.Builder
		text.WriteString("follower,user,time\n")
		for range 300 {
			a, b := pickPair(rng, users)
			at := 1_500_000_000 + rng.IntN(1_000_000)
			fmt.Fprintf(&text, "%s,%s,%d\n", a, b, at)
			f := want[[2]string{a, b}]
			f.history = max(f.history, events.Micros(at)*1_000_000)
			want[[2]string{a, b}] = f
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	order := append(rng.Perm(pieces), rng.Perm(pieces)...)
	for _, i := range order {
		if _, err := importer.Run(t.Context(), importer.Options{
			Kind: importer.Follows, Path: files[i],
			PublishOptions: importer.PublishOptions{
				LogID: "log",
				Publish: func(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
					res, err := api.Events().Publish(ctx, connect.NewRequest(req))
					if err != nil {
						return nil, err
					}
					return res.Msg, nil
				},
			},
		}); err != nil {
			t.Fatal(err)
		}
		publishLive(t, api, rng, users, want)
	}
	for u := range users {
		demandFollowing(t, api, fmt.Sprint("u", u), want)
	}
}

func pickPair(rng *rand.Rand, users int) (a, b string) {
	i, j := rng.IntN(users), rng.IntN(users-1)
	if j >= i {
		j++
	}
	return fmt.Sprint("u", i), fmt.Sprint("u", j)
}

// publishLive publishes some live follows and unfollows, one a call, and notes when they began to
// hold as the service tells it.
func publishLive(t *testing.T, api *command.Client, rng *rand.Rand, users int, want map[[2]string]edgeFacts) {
	t.Helper()
	for range 30 {
		a, b := pickPair(rng, users)
		l := liveFact{follow: rng.IntN(2) == 0}
		ev := userFollowed(a, b)
		if !l.follow {
			ev = &skeinv1.Event{Kind: &skeinv1.Event_UserUnfollowed{
				UserUnfollowed: &skeinv1.UserUnfollowed{UserId: a, TargetUserId: b},
			}}
		}
		before := time.Now()
		publish(t, api, ev)
		// The log gave it a time in between, which is the time since only where history does not
		// count.
		f := want[[2]string{a, b}]
		l.at = events.Micros(before.UnixMicro())
		f.live = append(f.live, l)
		want[[2]string{a, b}] = f
	}
}

// demandFollowing demands the list of a user, in order. Times of live facts are the log's: they are
// demanded to be within a second of when the fact was published, and to be those of the list's
// order.
func demandFollowing(t *testing.T, api *command.Client, user string, want map[[2]string]edgeFacts) {
	t.Helper()
	type entry struct {
		user  string
		since events.Micros
	}
	var wanted []entry
	for pair := range maps.Keys(want) {
		if since, ok := want[pair].since(); ok && pair[0] == user {
			wanted = append(wanted, entry{pair[1], since})
		}
	}
	slices.SortFunc(wanted, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.since, a.since), cmp.Compare(a.user, b.user))
	})
	res, err := api.Graph().ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{
		UserId: user, PageSize: 1000,
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []entry
	for _, e := range res.Msg.GetEntries() {
		since := events.Micros(e.GetFollowTime().AsTime().UnixMicro())
		for _, w := range wanted {
			if d := since - w.since; w.user == e.GetUserId() && d >= 0 && d < 1_000_000 {
				since = w.since
			}
		}
		got = append(got, entry{e.GetUserId(), since})
	}
	if diff := gocmp.Diff(wanted, got, gocmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("following of %s (-want +got):\n%s", user, diff)
	}
}
