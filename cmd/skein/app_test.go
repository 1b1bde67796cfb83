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

// startService runs the service inside the test on a data directory. It returns a client and a
// function that stops the service.
func startService(t *testing.T, dir string, logger *slog.Logger, options ...func(*service.Options)) (api *command.Client, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	serviceOptions := service.Options{
		Log: eventlog.Config{Dir: filepath.Join(dir, service.LogDir)}, Dir: dir, Logger: logger,
		Memory: service.Memory{Cache: 16 << 20, Queries: 1 << 20},
	}
	for _, option := range options {
		option(&serviceOptions)
	}

	app, err := service.Open(t.Context(), serviceOptions)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- app.Run(ctx, listener, func() error { close(ready); return nil }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}

	api = (&command.ClientFlags{Server: listener.Addr().String()}).Client()
	return api, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := app.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		api.HTTP.CloseIdleConnections()
	}
}

// mustPublish publishes events, waits until reads can see them, and returns the position of the
// last one.
func mustPublish(t *testing.T, api *command.Client, evs ...*skeinv1.Event) (position string) {
	t.Helper()
	res, err := api.Events().Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: evs, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetPosition()
}

// userPair asks whether a user follows another one.
func userPair(follower, followee string) *skeinv1.FollowPair {
	return &skeinv1.FollowPair{UserId: follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: followee}}
}

// isFollowing reports whether a user explicitly follows another one, in a state that contains the
// position atLeast, or in any state if atLeast is empty.
func isFollowing(ctx context.Context, api *command.Client, follower, followee, atLeast string) (bool, error) {
	res, err := api.Graph().CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{
		AtLeast: atLeast, Pairs: []*skeinv1.FollowPair{userPair(follower, followee)},
	}))
	if err != nil {
		return false, err
	}
	return res.Msg.GetKinds()[0] == skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT, nil
}

// getStatus asks a service for its status.
func getStatus(ctx context.Context, api *command.Client) (*skeinv1.GetStatusResponse, error) {
	res, err := api.Admin().GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// TestServiceKeepsEventsAndLeavesNoGoroutine closes a service and opens it again: the service must
// leave no goroutine behind, and must still have what was published.
func TestServiceKeepsEventsAndLeavesNoGoroutine(t *testing.T) {
	// Goroutines that libraries start once for a process are running already, and are ignored.
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	api, stop := startService(t, dir, logger)
	position := mustPublish(t, api, userFollowed("ann", "bob"))
	stop()

	api, stop = startService(t, dir, logger)
	defer stop()

	if follows, err := isFollowing(t.Context(), api, "ann", "bob", position); err != nil || !follows {
		t.Errorf("after a restart, ann follows bob: %v, %v, expected true", follows, err)
	}
}

// syncBuffer is a buffer that several goroutines may write and read.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is part of [io.Writer].
func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything that was written so far.
func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestFailedProjectionDoesNotStopTheService demands that a projection that cannot continue stops
// itself and not the process, and that the status says why.
func TestFailedProjectionDoesNotStopTheService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	api, stop := startService(t, dir, slog.New(slog.DiscardHandler))
	mustPublish(t, api, userFollowed("ann", "bob"))
	stop()

	// A new log takes the place of the old one, from which the stores were folded.
	if err := os.RemoveAll(filepath.Join(dir, service.LogDir)); err != nil {
		t.Fatal(err)
	}

	var log syncBuffer
	api, stop = startService(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
	defer stop()
	status, err := getStatus(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}

	projection := status.GetProjections()[0]
	if projection.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_FAILED || !strings.Contains(projection.GetError(), "another log") {
		t.Errorf("got the status %v, expected FAILED because of another log", projection)
	}
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the service logged no error:\n%s", log.String())
	}
}

// pairFacts are the facts about one pair of users, from which the test computes by itself whether
// the pair follows. importedAt is the time of the latest imported follow, and liveFacts are all
// live follows and unfollows, oldest first.
type pairFacts struct {
	importedAt events.Micros
	liveFacts  []liveFact
}

// liveFact is a follow or an unfollow that was published live.
type liveFact struct {
	isFollow bool
	// publishedAt is the time right before the call. The log gives the event its own time, a little
	// later.
	publishedAt events.Micros
}

// followedSince reports whether the pair follows, and since when. Imported history counts only if
// there is no live unfollow.
func (f pairFacts) followedSince() (events.Micros, bool) {
	began, ended := events.Micros(-1), false
	for _, fact := range f.liveFacts {
		switch {
		case !fact.isFollow:
			began, ended = -1, true
		case began < 0:
			began = fact.publishedAt
		}
	}
	switch {
	case !ended && f.importedAt > 0:
		return f.importedAt, true
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
	api, stop := startService(t, dir, slog.New(slog.DiscardHandler))
	defer stop()

	// With so few users, most pairs have imported and live facts.
	const users, pieces = 40, 6
	want := map[[2]string]pairFacts{}
	var files []string
	for i := range pieces {
		path := filepath.Join(dir, fmt.Sprintf("piece%d.csv", i))
		var text strings.Builder
		text.WriteString("follower,user,time\n")
		for range 300 {
			a, b := randomUsers(rng, users)
			importTime := 1_500_000_000 + rng.IntN(1_000_000)
			fmt.Fprintf(&text, "%s,%s,%d\n", a, b, importTime)
			facts := want[[2]string{a, b}]
			facts.importedAt = max(facts.importedAt, events.Micros(importTime)*1_000_000)
			want[[2]string{a, b}] = facts
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}

	// Each piece is imported twice, in two different orders.
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
		publishLiveFacts(t, api, rng, users, want)
	}

	for u := range users {
		checkFollowing(t, api, fmt.Sprint("u", u), want)
	}
}

// randomUsers returns two different users.
func randomUsers(rng *rand.Rand, users int) (a, b string) {
	i, j := rng.IntN(users), rng.IntN(users-1)
	if j >= i {
		j++
	}
	return fmt.Sprint("u", i), fmt.Sprint("u", j)
}

// publishLiveFacts publishes 30 live follows and unfollows, one per call, and records them in want.
func publishLiveFacts(t *testing.T, api *command.Client, rng *rand.Rand, users int, want map[[2]string]pairFacts) {
	t.Helper()
	for range 30 {
		a, b := randomUsers(rng, users)
		fact := liveFact{isFollow: rng.IntN(2) == 0}
		ev := userFollowed(a, b)
		if !fact.isFollow {
			ev = userUnfollowed(a, b)
		}

		before := time.Now()
		mustPublish(t, api, ev)
		facts := want[[2]string{a, b}]
		fact.publishedAt = events.Micros(before.UnixMicro())
		facts.liveFacts = append(facts.liveFacts, fact)
		want[[2]string{a, b}] = facts
	}
}

// checkFollowing checks the list of followees of a user, and its order. The log chooses the times
// of live facts, so the list may give a time up to a second after the fact was published.
func checkFollowing(t *testing.T, api *command.Client, user string, want map[[2]string]pairFacts) {
	t.Helper()
	type entry struct {
		user  string
		since events.Micros
	}

	// Compute the expected list, newest first.
	var expected []entry
	for pair := range maps.Keys(want) {
		if since, ok := want[pair].followedSince(); ok && pair[0] == user {
			expected = append(expected, entry{pair[1], since})
		}
	}
	slices.SortFunc(expected, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.since, a.since), cmp.Compare(a.user, b.user))
	})

	res, err := api.Graph().ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{
		UserId: user, PageSize: 1000,
	}))
	if err != nil {
		t.Fatal(err)
	}

	// Replace each time that is within a second of the expected one by the expected one.
	var got []entry
	for _, e := range res.Msg.GetEntries() {
		since := events.Micros(e.GetFollowTime().AsTime().UnixMicro())
		for _, w := range expected {
			if d := since - w.since; w.user == e.GetUserId() && d >= 0 && d < 1_000_000 {
				since = w.since
			}
		}
		got = append(got, entry{e.GetUserId(), since})
	}
	if diff := gocmp.Diff(expected, got, gocmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("following of %s (-want +got):\n%s", user, diff)
	}
}
