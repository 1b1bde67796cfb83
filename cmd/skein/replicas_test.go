package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// replicas are two processes of the service, each with its own data directory, over one log on a
// cluster of three NATS servers. A client may call either.
type replicas struct {
	cluster *natsCluster
	servers [2]*serverProcess
	apis    [2]*command.Client
}

// callTime is the time limit of one call. No call takes the service as long.
const callTime = 2 * time.Minute

// TestReplicasAnswerAsOneProcess demands that two processes over one cluster answer as one would:
// while a NATS server is down, page by page, while the processes are restarted one after the other,
// and after one was killed or has lost its disk.
func TestReplicasAnswerAsOneProcess(t *testing.T) { //nolint:tparallel // its parts follow each other
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	r := startReplicas(ctx, t, "")

	info, err := r.cluster.waitUntilReplicated(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Config.Replicas != 3 {
		t.Fatalf("on three servers the log has %d replicas, want 3", info.Config.Replicas)
	}

	// Each part continues with the processes and the data of the one before.
	for _, part := range []struct {
		name string
		run  func(context.Context, *testing.T)
	}{
		{"NATS servers stop under load", r.stopNATSServers},
		{"pages come from both processes", r.readPagesFromBoth},
		{"processes restart under load", r.restartUnderLoad},
		{"a process is killed, then loses its data", r.killAndEmptyProcess},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(ctx, t) }) {
			break
		}
	}
	r.checkLogsHaveNoErrors(t)
}

// startReplicas starts two processes with flags over a cluster of three NATS servers. An empty
// program means the program under test.
func startReplicas(ctx context.Context, t *testing.T, program string, flags ...string) *replicas {
	t.Helper()
	r := &replicas{cluster: startNATSCluster(t)}
	flags = append([]string{"--nats", r.cluster.urls()}, flags...)
	for i := range r.servers {
		r.servers[i] = &serverProcess{t: t, dir: t.TempDir(), program: program, flags: flags}
		t.Cleanup(r.servers[i].kill)
	}

	// Start both at once, so that they compete for creating the log.
	if err := forBothProcesses(func(i int) error { return r.servers[i].start(ctx) }); err != nil {
		t.Fatal(err)
	}

	for i, s := range r.servers {
		r.apis[i] = s.newClient()
		t.Cleanup(r.apis[i].HTTP.CloseIdleConnections)
	}
	return r
}

// checkLogsHaveNoErrors checks that no process has logged an error or a data race. It prints the
// logs if the test has failed.
func (r *replicas) checkLogsHaveNoErrors(t *testing.T) {
	t.Helper()
	for i, s := range r.servers {
		text, err := s.readLogFile()
		if err != nil {
			t.Errorf("the log of process %d: %v", i, err)
		}
		if strings.Contains(text, "level=ERROR") || strings.Contains(text, "DATA RACE") {
			t.Errorf("process %d has logged an error or a data race, want neither", i)
		}
		if t.Failed() {
			t.Logf("the log of process %d:\n%s", i, text)
		}
	}
}

// forBothProcesses calls run for both processes at once and returns their errors.
func forBothProcesses(run func(i int) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = run(i) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// publishAt publishes events through process i, and returns the position of the last one.
func (r *replicas) publishAt(ctx context.Context, i int, evs ...*skeinv1.Event) (position string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	res, err := r.apis[i].Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
	if err != nil {
		return "", err
	}
	return res.Msg.GetPosition(), nil
}

// isFollowing asks process i whether a user follows another one, in a state that contains the
// position.
func (r *replicas) isFollowing(ctx context.Context, i int, follower, followee, atLeast string) (follows bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err = readUntilCaughtUp(func() (err error) {
		follows, err = isFollowing(ctx, r.apis[i], follower, followee, atLeast)
		return err
	})
	return follows, err
}

// notCaughtUp is in the error of a read whose position the process has not reached in time.
const notCaughtUp = "the state that contains the position was not reached in time"

// readUntilCaughtUp repeats a read for as long as the process has not reached the position that the
// read demands. A process waits five seconds for the position, which can be too short on a busy
// machine, and while the NATS servers elect a leader.
func readUntilCaughtUp(read func() error) error {
	for {
		err := read()
		if err == nil || !strings.Contains(err.Error(), notCaughtUp) {
			return err
		}
	}
}

// listFollowers returns all followers of a user from process i, and the number of followers that
// the process counts.
func (r *replicas) listFollowers(ctx context.Context, i int, user, atLeast string) (ids []string, count int64, err error) {
	req := &skeinv1.ListFollowersRequest{UserId: user, PageSize: 1000, AtLeast: atLeast}
	for {
		var res *connect.Response[skeinv1.ListFollowersResponse]
		err := readUntilCaughtUp(func() (err error) {
			res, err = r.apis[i].Graph().ListFollowers(ctx, connect.NewRequest(req))
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		for _, e := range res.Msg.GetEntries() {
			ids = append(ids, e.GetUserId())
		}

		req.PageToken = res.Msg.GetNextPageToken()
		if req.PageToken == "" {
			return ids, int64(res.Msg.GetTotalSize()), nil
		}
	}
}

// checkFollowers checks that both processes list exactly these followers, each once, and count them
// correctly.
func (r *replicas) checkFollowers(ctx context.Context, t *testing.T, user string, want []string, atLeast string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	for i := range r.apis {
		got, count, err := r.listFollowers(ctx, i, user, atLeast)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("process %d, followers of %s (-want +got):\n%s", i, user, diff)
		}
		if count != int64(len(want)) {
			t.Errorf("process %d counts %d followers of %s, want %d", i, count, user, len(want))
		}
	}
}

// followWithEventID returns a follow whose event id is made of both users, so that it may be
// published again.
func followWithEventID(follower, user string) *skeinv1.Event {
	ev := userFollowed(follower, user)
	ev.EventId = follower + "-" + user
	return ev
}

// userUnfollowed returns an unfollow.
func userUnfollowed(follower, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserUnfollowed{
		UserUnfollowed: &skeinv1.UserUnfollowed{UserId: follower, TargetUserId: user},
	}}
}

// followLoad is a constant load of eight writers. Each writer publishes a follow through one
// process, and reads it back from the other. A call that fails is made again at the other address.
type followLoad struct {
	replicas *replicas
	t        *testing.T
	// followee is the user whom all followers follow.
	followee string
	// retriesUntilAnswered has a call made again for as long as the processes report that they are
	// unavailable. Otherwise a call that fails at both addresses fails the test.
	retriesUntilAnswered bool
	// stop ends the load when all calls under way have been answered.
	stop func()

	calls     atomic.Int64
	failovers atomic.Int64 // calls that were made again at the other address

	// ackedFollowers are the followers of each writer whose follow was acknowledged.
	ackedFollowers [8][]string
	// slowest are the longest calls of each writer.
	slowest [8]struct{ publish, read time.Duration }
	// repeatedFollowers are the followers whose follow was published twice with one event id.
	repeatedFollowers sync.Map
}

// startLoad starts a load of follows of a user. The load ends with the test at the latest.
func (r *replicas) startLoad(ctx context.Context, t *testing.T, followee string, retriesUntilAnswered bool) *followLoad {
	t.Helper()
	l := &followLoad{replicas: r, t: t, followee: followee, retriesUntilAnswered: retriesUntilAnswered}
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	for writer := range l.ackedFollowers {
		wg.Go(func() {
			for n := 0; l.followAndRead(ctx, writer, n); n++ {
				select {
				case <-stopped:
					return
				default:
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		close(stopped)
		wg.Wait()
	})
	t.Cleanup(l.stop)
	return l
}

// followAndRead publishes the n-th follow of a writer through one process, and checks that the
// other process shows it. It reports whether the writer may continue.
func (l *followLoad) followAndRead(ctx context.Context, writer, n int) bool {
	follower := fmt.Sprintf("%s%d-%d", l.followee, writer, n)

	// Publish through one process, or through the other one if that fails. The first attempt may
	// have published the follow all the same.
	firstChoice := (writer + n) % 2
	publishedBy := firstChoice
	var position string
	publish := func(i int) (err error) {
		if i != firstChoice {
			l.repeatedFollowers.Store(follower, true)
		}
		publishedBy = i
		position, err = l.replicas.publishAt(ctx, i, followWithEventID(follower, l.followee))
		return err
	}
	if err := l.callWithFailover(&l.slowest[writer].publish, firstChoice, publish); err != nil {
		l.t.Errorf("publishing %s: %v", follower, err)
		return false
	}
	l.ackedFollowers[writer] = append(l.ackedFollowers[writer], follower)

	// Read from the other process, at the position that the publishing one returned. If the other
	// process does not accept the position, it answers that the argument is invalid.
	read := func(i int) error {
		isFollowing, err := l.replicas.isFollowing(ctx, i, follower, l.followee, position)
		if err == nil && !isFollowing {
			l.t.Errorf("process %d does not show %s, which process %d published at %s", i, follower, publishedBy, position)
		}
		if connect.CodeOf(err) == connect.CodeInvalidArgument {
			l.t.Errorf("process %d refuses the position %s of process %d: %v", i, position, publishedBy, err)
		}
		return err
	}
	if err := l.callWithFailover(&l.slowest[writer].read, 1-publishedBy, read); err != nil {
		l.t.Errorf("reading %s: %v", follower, err)
		return false
	}
	return true
}

// callWithFailover makes a call to process i, and to the other process if that fails. If the load
// retries until a call is answered, callWithFailover alternates between the processes as long as
// they are unavailable, or do not know what became of an event. It sets slowest to the time that
// the call took, if that was longer.
func (l *followLoad) callWithFailover(slowest *time.Duration, i int, call func(i int) error) error {
	began := time.Now()
	defer func() { *slowest = max(*slowest, time.Since(began)) }()
	l.calls.Add(1)

	var errs []error
	for {
		err := call(i)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("process %d: %w", i, err))

		givesUp := len(errs) == 2
		if l.retriesUntilAnswered {
			code := connect.CodeOf(err)
			isUnavailable := code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded
			givesUp = !isUnavailable || time.Since(began) > waitLimit
		}
		if givesUp {
			return errors.Join(errs...)
		}

		l.failovers.Add(1)
		i = 1 - i
	}
}

// waitForMoreCalls waits until the load has made 400 more calls (150 in a short test), so that each
// step of a test happens under load.
func (l *followLoad) waitForMoreCalls(ctx context.Context) {
	l.t.Helper()
	more := int64(400)
	if testing.Short() {
		more = 150
	}
	want := l.calls.Load() + more
	if err := eventually(ctx, func(context.Context) error {
		if n := l.calls.Load(); n < want {
			return fmt.Errorf("%d calls of %d", n, want)
		}
		return nil
	}); err != nil {
		l.t.Error(err)
	}
}

// stopAndCheck ends the load, and checks that both processes have exactly the followers that were
// acknowledged.
func (l *followLoad) stopAndCheck(ctx context.Context) {
	l.t.Helper()
	l.stop()

	slowest := l.slowest[0]
	for _, s := range l.slowest {
		slowest.publish = max(slowest.publish, s.publish)
		slowest.read = max(slowest.read, s.read)
	}
	l.t.Logf("%d calls, %d made again at the second address; publishing took %v at most, reading %v",
		l.calls.Load(), l.failovers.Load(), slowest.publish, slowest.read)

	if l.t.Failed() {
		return
	}
	position, err := l.replicas.publishAt(ctx, 0, followWithEventID("last", l.followee))
	if err != nil {
		l.t.Fatal(err)
	}
	want := append(slices.Concat(l.ackedFollowers[:]...), "last")
	l.replicas.checkFollowers(ctx, l.t, l.followee, want, position)
}

// stopNATSServers stops the NATS server that leads the log under load, and starts it again. In a
// long test it does the same with the next leader. A process that must find another server, or
// waits for an election, may report that it is unavailable. It must not refuse a position that the
// other process returned, nor answer from a state without that position.
func (r *replicas) stopNATSServers(ctx context.Context, t *testing.T) {
	rounds := 2
	if testing.Short() {
		rounds = 1
	}

	l := r.startLoad(ctx, t, "star", true)
	for range rounds {
		l.waitForMoreCalls(ctx)
		leader, err := r.cluster.findLeader(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r.cluster.stopServer(leader)
		l.waitForMoreCalls(ctx)
		r.cluster.startServer(leader)
		l.waitForMoreCalls(ctx)
	}

	l.stopAndCheck(ctx)

	// Every follow must be in the log exactly once, unless it was published twice.
	batches, err := r.cluster.readEnvelopes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	timesInLog := map[string]int{}
	for _, batch := range batches {
		for _, ev := range batch.GetEvents() {
			timesInLog[ev.GetUserFollowed().GetUserId()]++
		}
	}
	for _, follower := range slices.Concat(l.ackedFollowers[:]...) {
		_, isRepeated := l.repeatedFollowers.Load(follower)
		if n := timesInLog[follower]; n != 1 && !isRepeated {
			t.Errorf("the log has the follow of %s %d times, want once", follower, n)
		}
	}
}

// readPagesFromBoth reads a list page by page, each page from the process that did not answer the
// one before, while other followers come and go. Then it scans the list in the same way. Followers
// who stay must be listed in order and once.
func (r *replicas) readPagesFromBoth(ctx context.Context, t *testing.T) {
	const churningUsers = 60
	stayingUsers := 3600
	sessions := 4
	if testing.Short() {
		stayingUsers = 2400
		sessions = 2
	}

	// The followers who come and go are spread evenly between those who stay.
	var evs []*skeinv1.Event
	stayingPerChurning := stayingUsers / churningUsers
	for n := range stayingUsers {
		evs = append(evs, userFollowed(fmt.Sprint("stay", n), "board"))
		if n%stayingPerChurning == 0 {
			evs = append(evs, userFollowed(fmt.Sprint("churn", n/stayingPerChurning), "board"))
		}
	}

	var position string
	for chunk := range slices.Chunk(evs, 1000) {
		var err error
		position, err = r.publishAt(ctx, 0, chunk...)
		if err != nil {
			t.Fatal(err)
		}
	}

	// Let two writers add and remove followers until the end of this function. Each writer has its
	// own followers.
	churning, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop() // before wg.Wait
	var changes atomic.Int64
	for w := range 2 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for churning.Err() == nil {
				follower := fmt.Sprint("churn", w+2*rng.IntN(churningUsers/2))
				ev := userUnfollowed(follower, "board")
				if rng.IntN(2) == 0 {
					ev = userFollowed(follower, "board")
				}
				if _, err := r.publishAt(ctx, rng.IntN(2), ev); err != nil {
					t.Error(err)
					return
				}
				changes.Add(1)
			}
		})
	}

	// Read the list in several sessions with pages of different sizes.
	pages := 0
	for session := range sessions {
		var listed []string
		req := &skeinv1.ListFollowersRequest{UserId: "board", PageSize: int32(20 + 13*session), AtLeast: position}
		for i := session; ; i++ {
			before := changes.Load()
			var res *connect.Response[skeinv1.ListFollowersResponse]
			err := readUntilCaughtUp(func() (err error) {
				res, err = r.apis[i%2].Graph().ListFollowers(ctx, connect.NewRequest(req))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range res.Msg.GetEntries() {
				listed = append(listed, e.GetUserId())
			}
			pages++

			req.AtLeast = "" // the page token demands a position itself
			req.PageToken = res.Msg.GetNextPageToken()
			if req.PageToken == "" {
				break
			}

			// Wait for a change of the list, so that no two pages come from the same state.
			waitUntil(ctx, t, func(context.Context) error {
				if changes.Load() == before {
					return errors.New("nothing changes")
				}
				return nil
			})
		}
		checkSession(t, listed, stayingUsers)
	}

	// Take the first message of a scan, and continue with a scan at the other process. The last
	// message has no entries.
	scans := 0
	var scanned []string
	token := ""
	for i := 0; ; i++ {
		var message *skeinv1.ScanFollowersResponse
		err := readUntilCaughtUp(func() (err error) {
			message, err = r.scanFirstMessage(ctx, i%2, token, position)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(message.GetEntries()) == 0 {
			break
		}
		for _, e := range message.GetEntries() {
			scanned = append(scanned, e.GetUserId())
		}
		token = message.GetResumeToken()
		scans++
	}
	checkSession(t, scanned, stayingUsers)

	t.Logf("%d pages in %d sessions, a scan in %d parts, %d changes", pages, sessions, scans, changes.Load())
	if scans < 3 {
		t.Errorf("the scan had %d parts, want at least 3 so that the processes alternate", scans)
	}
}

// scanFirstMessage begins or resumes a scan at process i, and breaks it off after the first
// message.
func (r *replicas) scanFirstMessage(ctx context.Context, i int, token, atLeast string) (*skeinv1.ScanFollowersResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	scan, err := r.apis[i].Graph().ScanFollowers(ctx, connect.NewRequest(&skeinv1.ScanFollowersRequest{
		Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "board"}, ResumeToken: token, AtLeast: atLeast,
	}))
	if err != nil {
		return nil, err
	}
	defer scan.Close()
	if !scan.Receive() {
		return nil, errors.Join(errors.New("a scan without a message"), scan.Err())
	}
	return scan.Msg(), nil
}

// checkSession checks that a session listed every user who stayed, in order and once, and nobody
// else twice.
func checkSession(t *testing.T, listed []string, stayingUsers int) {
	t.Helper()
	next := stayingUsers - 1 // the newest comes first
	timesListed := map[string]int{}
	for _, id := range listed {
		timesListed[id]++
		if timesListed[id] > 1 {
			t.Errorf("%s is listed %d times, want once", id, timesListed[id])
		}
		if !strings.HasPrefix(id, "stay") {
			continue
		}

		if want := fmt.Sprint("stay", next); id != want {
			t.Errorf("got %s, want %s at this place", id, want)
		}
		next--
	}
	if next != -1 {
		t.Errorf("%d of %d users who stayed are listed", stayingUsers-1-next, stayingUsers)
	}
}

// restartUnderLoad restarts the processes one after the other under load. No call may fail at both
// addresses.
func (r *replicas) restartUnderLoad(ctx context.Context, t *testing.T) {
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	l := r.startLoad(ctx, t, "rolling", false)
	for range rounds {
		r.restartEach(ctx, t, l, "")
	}
	l.stopAndCheck(ctx)
}

// restartEach restarts the processes one after the other under a load, with another program if one
// is given.
func (r *replicas) restartEach(ctx context.Context, t *testing.T, l *followLoad, program string) {
	t.Helper()
	for i, s := range r.servers {
		l.waitForMoreCalls(ctx)
		if err := s.stopGracefully(); err != nil {
			t.Errorf("process %d ended with %v", i, err)
		}
		l.waitForMoreCalls(ctx)
		s.program = program
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	l.waitForMoreCalls(ctx)
}

// killAndEmptyProcess kills one process, which must continue from the position of its store. Then
// it removes the data directory of the process, which must build the same rows again.
func (r *replicas) killAndEmptyProcess(ctx context.Context, t *testing.T) {
	const (
		survivor = 0
		victim   = 1
	)
	killed := r.servers[victim]

	killed.kill()
	storedAt := storePosition(ctx, t, killed)

	// Publish while the process is down, and demand its answers after it has caught up.
	var want []string
	for n := range 50 {
		follower := fmt.Sprint("meanwhile", n)
		if _, err := r.publishAt(ctx, survivor, followWithEventID(follower, "killed")); err != nil {
			t.Fatal(err)
		}
		want = append(want, follower)
	}

	firstAnswered, err := r.startAndReadPosition(ctx, victim)
	if err != nil {
		t.Fatal(err)
	}

	position, err := r.publishAt(ctx, victim, followWithEventID("after", "killed"))
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, "after")
	r.checkFollowers(ctx, t, "killed", want, position)
	t.Logf("killed with its store at %d, it began at %d", storedAt, firstAnswered)
	if storedAt == 0 {
		t.Error("the store of the killed process is at position 0, want a later one")
	}
	if firstAnswered < storedAt {
		t.Errorf("the process began at position %d, want at least %d, the position of its store", firstAnswered, storedAt)
	}

	// Remove the data, and let the process build its stores again.
	if err := killed.stopGracefully(); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(killed.dataDir()); err != nil {
		t.Fatal(err)
	}
	firstAnswered, err = r.startAndReadPosition(ctx, victim)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("with an empty directory it began at %d", firstAnswered)
	r.checkFollowers(ctx, t, "killed", want, position)

	position, err = r.publishAt(ctx, victim, followWithEventID("rebuilt", "killed"))
	if err != nil {
		t.Fatal(err)
	}
	r.checkFollowers(ctx, t, "killed", append(want, "rebuilt"), position)

	// Both stores must have the same rows now.
	if err := forBothProcesses(func(i int) error { return r.servers[i].stopGracefully() }); err != nil {
		t.Error(err)
	}

	liveRows := string(inspectRows(ctx, t, r.servers[survivor]))
	rebuiltRows := string(inspectRows(ctx, t, killed))
	if liveRows != rebuiltRows {
		diff := gocmp.Diff(strings.Split(liveRows, "\n"), strings.Split(rebuiltRows, "\n"))
		t.Errorf("rows that were folded live, and rows that were rebuilt (-live +rebuilt):\n%s", diff)
	}
	t.Logf("%d rows folded live", strings.Count(liveRows, "\n"))
	if stoppedAt := storePosition(ctx, t, killed); stoppedAt <= storedAt {
		t.Errorf("after a graceful stop the store is at position %d, want more than %d", stoppedAt, storedAt)
	}
}

// startAndReadPosition starts process i and returns the position of the first answer that the
// process gives. That is the position of its store when it was opened, or a little more.
func (r *replicas) startAndReadPosition(ctx context.Context, i int) (first uint64, err error) {
	// Ask while the process starts, because it folds the log as soon as it has opened its store.
	url := "http://" + r.servers[i].addr + "/metrics"
	var wg sync.WaitGroup
	var askErr error
	wg.Go(func() {
		askErr = eventually(ctx, func(ctx context.Context) error {
			_, text, err := httpGet(ctx, r.apis[i].HTTP, url)
			if err != nil {
				return err
			}
			first, err = findNumber([]byte(text), `(?m)^skein_projection_position\{projection="graph"\} (\S+)$`)
			return err
		})
	})
	startErr := r.servers[i].start(ctx)
	wg.Wait()
	return first, errors.Join(startErr, askErr)
}

// findNumber returns the whole number that the first group of a pattern matches.
func findNumber(text []byte, pattern string) (uint64, error) {
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s is not in %s", pattern, text)
	}
	n, err := strconv.ParseFloat(string(found[1]), 64)
	return uint64(n), err
}

// storePosition returns the position of the store of a process that does not run.
func storePosition(ctx context.Context, t *testing.T, s *serverProcess) uint64 {
	t.Helper()
	seq, err := findNumber(inspectRows(ctx, t, s, "--kind", "checkpoint"), ` seq=(\d+) `)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// inspectRows returns the rows of the store of a process that does not run.
func inspectRows(ctx context.Context, t *testing.T, s *serverProcess, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(ctx, "skein", append([]string{"inspect", s.dataDir()}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	rows, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd, err, &stderr)
	}
	return rows
}
