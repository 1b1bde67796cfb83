package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
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
	"github.com/skein-feed/skein/events/leaktest"
	"github.com/skein-feed/skein/gateway"
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
		// On a busy machine, a call must neither be refused nor end because projections are slow.
		Limits: gateway.Limits{ShedAfter: -1, AtLeastWait: time.Minute, VisibleWait: time.Minute, CallTimeout: waitLimit},
	}
	for _, option := range options {
		option(&serviceOptions)
	}

	app, err := service.Open(t.Context(), serviceOptions)
	if err != nil {
		t.Fatal(err)
	}

	// Run it until stop is called, and return when it is ready.
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, listener, func() error {
			close(ready)
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatalf("the service ended with %v before it was ready", err)
	}

	api = (&command.ClientFlags{Server: listener.Addr().String()}).Client()
	return api, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: got error %v, want none", err)
		}

		// The service needs a context that has not ended to close its stores.
		if err := app.Close(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("Close: got error %v, want none", err)
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
	defer leaktest.Verify(t, goleak.IgnoreCurrent())

	dir := t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	api, stop := startService(t, dir, logger)
	position := mustPublish(t, api, userFollowed("ann", "bob"))
	stop()

	api, stop = startService(t, dir, logger)
	defer stop()
	follows, err := isFollowing(t.Context(), api, "ann", "bob", position)
	if err != nil {
		t.Fatal(err)
	}
	if !follows {
		t.Errorf("ann follows bob after a restart: got %v, want true", follows)
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
	if got, want := projection.GetState(), skeinv1.ProjectionState_PROJECTION_STATE_FAILED; got != want {
		t.Errorf("state of %s: got %v, want %v", projection.GetName(), got, want)
	}
	if got, want := projection.GetError(), "another log"; !strings.Contains(got, want) {
		t.Errorf("error of %s: got %q, want %q in it", projection.GetName(), got, want)
	}
	if text, want := log.String(), "level=ERROR"; !strings.Contains(text, want) {
		t.Errorf("log of the service: got\n%s\nwant %q in it", text, want)
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
	// publishedAt is the time right before the call. The log gives the event its own time, which is
	// latest at most.
	publishedAt, latest events.Micros
}

// followedSince reports whether the pair follows, and between which two times that began. Imported
// history counts only if there is no live unfollow.
func (f pairFacts) followedSince() (earliest, latest events.Micros, follows bool) {
	// A repeated live follow does not change the time of the first one.
	var firstFollow *liveFact
	wasUnfollowed := false
	for _, fact := range f.liveFacts {
		switch {
		case !fact.isFollow:
			firstFollow = nil
			wasUnfollowed = true
		case firstFollow == nil:
			firstFollow = &fact
		}
	}

	switch {
	case !wasUnfollowed && f.importedAt > 0:
		return f.importedAt, f.importedAt, true
	case firstFollow != nil:
		return firstFollow.publishedAt, firstFollow.latest, true
	}
	return 0, 0, false
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

	// With so few users, most pairs that have live facts also have imported ones.
	const users, pieces = 40, 6
	want := map[[2]string]pairFacts{}
	var files []string
	for i := range pieces {
		path := filepath.Join(dir, fmt.Sprintf("piece%d.csv", i))
		var text strings.Builder
		text.WriteString("follower,user,time\n")
		for range 300 {
			follower, followee := randomUsers(rng, users)
			importTime := 1_500_000_000 + rng.IntN(1_000_000)
			fmt.Fprintf(&text, "%s,%s,%d\n", follower, followee, importTime)

			pair := [2]string{follower, followee}
			facts := want[pair]
			facts.importedAt = max(facts.importedAt, events.Micros(importTime)*1_000_000)
			want[pair] = facts
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}

	// Import each piece twice, in two different orders, with live facts after each import.
	order := append(rng.Perm(pieces), rng.Perm(pieces)...)
	publish := func(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
		res, err := api.Events().Publish(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	for _, i := range order {
		_, err := importer.Run(t.Context(), importer.Options{
			Kind: importer.Follows, Path: files[i],
			PublishOptions: importer.PublishOptions{LogID: "log", Publish: publish},
		})
		if err != nil {
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
		follower, followee := randomUsers(rng, users)
		isFollow := rng.IntN(2) == 0
		ev := userFollowed(follower, followee)
		if !isFollow {
			ev = userUnfollowed(follower, followee)
		}

		fact := liveFact{isFollow: isFollow, publishedAt: events.Micros(time.Now().UnixMicro())}
		mustPublish(t, api, ev)
		// An envelope takes as many microseconds of log time as it has events, so the log can be
		// ahead of the clock by as many.
		fact.latest = events.Micros(time.Now().UnixMicro() + events.MaxEnvelopeEvents)

		pair := [2]string{follower, followee}
		facts := want[pair]
		facts.liveFacts = append(facts.liveFacts, fact)
		want[pair] = facts
	}
}

// checkFollowing checks the list of followees of a user, and its order. The log chooses the times
// of live facts, so the list may give any time from the call that published the fact to its end.
func checkFollowing(t *testing.T, api *command.Client, user string, want map[[2]string]pairFacts) {
	t.Helper()
	type entry struct {
		user  string
		since events.Micros
	}

	// Compute the expected list, newest first, with the earliest time of each entry.
	var expected []entry
	latestOf := map[string]events.Micros{}
	for pair, facts := range want {
		follower, followee := pair[0], pair[1]
		if follower != user {
			continue
		}
		if earliest, latest, follows := facts.followedSince(); follows {
			expected = append(expected, entry{followee, earliest})
			latestOf[followee] = latest
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

	// Replace each time that is expected by the earliest one that is expected.
	var got []entry
	for _, listed := range res.Msg.GetEntries() {
		since := events.Micros(listed.GetFollowTime().AsTime().UnixMicro())
		for _, e := range expected {
			if e.user == listed.GetUserId() && since >= e.since && since <= latestOf[e.user] {
				since = e.since
			}
		}
		got = append(got, entry{listed.GetUserId(), since})
	}
	if diff := gocmp.Diff(expected, got, gocmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("ListFollowing of %s (-want +got):\n%s", user, diff)
	}
}
