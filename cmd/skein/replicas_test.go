package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// replicas are two processes of the service, with a data directory each, over one log on a cluster
// of three NATS servers. A client may ask either.
type replicas struct {
	cluster *natsCluster
	servers [2]*server
	apis    [2]*command.Client
}

// callTime bounds one call. It is more than the service itself takes for any.
const callTime = 2 * time.Minute

// TestReplicasAnswerAsOneProcess demands that two processes over one cluster answer as one would:
// while a NATS server is down, page by page, while the processes are restarted one after the other,
// and after one was killed or has lost its disk.
func TestReplicasAnswerAsOneProcess(t *testing.T) { //nolint:tparallel // its parts follow each other
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	r := startReplicas(ctx, t, "")
	info, err := r.cluster.awaitWhole(ctx)
	if err != nil || info.Config.Replicas != 3 {
		t.Fatalf("on three servers the log has %d replicas, %v", info.Config.Replicas, err)
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, *testing.T)
	}{
		{"NATS servers stop", r.natsServersStop},
		{"pages from both", r.pagesFromBoth},
		{"rolling restart", r.rollingRestart},
		{"killed and emptied", r.killedAndEmptied},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(ctx, t) }) {
			break
		}
	}
	r.demandQuietLogs(t)
}

// startReplicas starts two processes of a program (empty: this one) with some flags over a cluster
// of three NATS servers.
func startReplicas(ctx context.Context, t *testing.T, program string, flags ...string) *replicas {
	t.Helper()
	r := &replicas{cluster: startCluster(t)}
	flags = append([]string{"--nats", r.cluster.url()}, flags...)
	for i := range r.servers {
		r.servers[i] = &server{t: t, dir: t.TempDir(), program: program, flags: flags}
		t.Cleanup(r.servers[i].kill)
	}
	// Both at a time: one of them makes the log.
	if err := both(func(i int) error { return r.servers[i].start(ctx) }); err != nil {
		t.Fatal(err)
	}
	for i, s := range r.servers {
		r.apis[i] = (&command.ClientFlags{Server: s.addr}).Client()
		t.Cleanup(r.apis[i].HTTP.CloseIdleConnections)
	}
	return r
}

// demandQuietLogs demands that no process has logged an error; it shows their logs if the test has
// failed.
func (r *replicas) demandQuietLogs(t *testing.T) {
	t.Helper()
	for i, s := range r.servers {
		text, err := os.ReadFile(filepath.Join(s.dir, "server.log"))
		if err != nil || bytes.Contains(text, []byte("level=ERROR")) || bytes.Contains(text, []byte("DATA RACE")) || t.Failed() {
			t.Errorf("%v, the log of process %d:\n%s", err, i, text)
		}
	}
}

// both does it for both processes at a time.
func both(do func(i int) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// stopInOrder ends a process as its operator would.
func (s *server) stopInOrder() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}

// publish publishes one event through one process.
func (r *replicas) publish(ctx context.Context, i int, evs ...*skeinv1.Event) (position string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	res, err := r.apis[i].Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
	if err != nil {
		return "", err
	}
	return res.Msg.GetPosition(), nil
}

// follows asks one process whether a user follows another, in a state that contains the position.
func (r *replicas) follows(ctx context.Context, i int, follower, user, atLeast string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	res, err := r.apis[i].Graph().CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{
		AtLeast: atLeast,
		Pairs:   []*skeinv1.FollowPair{{UserId: follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: user}}},
	}))
	if err != nil {
		return false, err
	}
	return res.Msg.GetKinds()[0] == skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT, nil
}

// followers returns the whole list of a user's followers from one process, with its length as the
// process counts it.
func (r *replicas) followers(ctx context.Context, i int, user, atLeast string) (ids []string, count int64, err error) {
	req := &skeinv1.ListFollowersRequest{UserId: user, PageSize: 1000, AtLeast: atLeast}
	for {
		res, err := r.apis[i].Graph().ListFollowers(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, 0, err
		}
		for _, e := range res.Msg.GetEntries() {
			ids = append(ids, e.GetUserId())
		}
		if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
			return ids, int64(res.Msg.GetTotalSize()), nil
		}
	}
}

// demandFollowers demands that both processes have just these followers, each once.
func (r *replicas) demandFollowers(ctx context.Context, t *testing.T, user string, want []string, atLeast string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	for i := range r.apis {
		got, count, err := r.followers(ctx, i, user, atLeast)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if diff := gocmp.Diff(want, got); diff != "" || count != int64(len(want)) {
			t.Errorf("process %d counts %d followers of %s, want %d (-want +got):\n%s", i, count, user, len(want), diff)
		}
	}
}

func namedFollow(follower, user string) *skeinv1.Event {
	ev := userFollowed(follower, user)
	ev.EventId = follower + "-" + user
	return ev
}

func unfollow(follower, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserUnfollowed{
		UserUnfollowed: &skeinv1.UserUnfollowed{UserId: follower, TargetUserId: user},
	}}
}

// load is a constant load of writers that read each write back from the other process. A call that
// fails is made once more, at the other address. A call without an answer then is lost.
type load struct {
	r       *replicas
	t       *testing.T
	user    string // whom all follow
	patient bool   // a call is made as often as it takes
	stop    func() // ends the load when every call under way is answered

	calls, again atomic.Int64
	acked        [8][]string
	slowest      [8]struct{ publish, read time.Duration }
	// repeated are the followers whose follow was published twice, under one event id.
	repeated sync.Map
}

// startLoad starts a load of follows of the user.
func (r *replicas) startLoad(ctx context.Context, t *testing.T, user string, patient bool) *load {
	t.Helper()
	l := &load{r: r, t: t, user: user, patient: patient}
	over := make(chan struct{})
	var wg sync.WaitGroup
	for w := range l.acked {
		wg.Go(func() {
			for n := 0; l.once(ctx, w, n); n++ {
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		close(over)
		wg.Wait()
	})
	t.Cleanup(l.stop)
	return l
}

// once makes one follow and reads it.
func (l *load) once(ctx context.Context, w, n int) bool {
	follower := fmt.Sprintf("%s%d-%d", l.user, w, n)
	var position string
	var taker int
	if err := l.twice(&l.slowest[w].publish, (w+n)%2, func(i int) (err error) {
		if i != (w+n)%2 {
			l.repeated.Store(follower, true)
		}
		taker = i
		position, err = l.r.publish(ctx, i, namedFollow(follower, l.user))
		return err
	}); err != nil {
		l.t.Errorf("publishing %s: %v", follower, err)
		return false
	}
	l.acked[w] = append(l.acked[w], follower)
	if err := l.twice(&l.slowest[w].read, 1-taker, func(i int) error {
		ok, err := l.r.follows(ctx, i, follower, l.user, position)
		if err == nil && !ok || connect.CodeOf(err) == connect.CodeInvalidArgument {
			l.t.Errorf("process %d does not show %s, which process %d has taken at %s: %v", i, follower, taker, position, err)
		}
		return err
	}); err != nil {
		l.t.Errorf("reading %s: %v", follower, err)
		return false
	}
	return true
}

// twice makes a call to one process, and if that fails, to the other. While a NATS server is down
// it does so for as long as they say that they are not available, or that they do not know what
// became of an event.
func (l *load) twice(slowest *time.Duration, i int, do func(i int) error) error {
	began := time.Now()
	defer func() { *slowest = max(*slowest, time.Since(began)) }()
	l.calls.Add(1)
	var errs []error
	for {
		err := do(i)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("process %d: %w", i, err))
		code := connect.CodeOf(err)
		passing := code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded
		if l.patient && (!passing || time.Since(began) > patience) || !l.patient && len(errs) == 2 {
			return errors.Join(errs...)
		}
		l.again.Add(1)
		i = 1 - i
	}
}

// more waits until the load has made more calls.
func (l *load) more(ctx context.Context) {
	l.t.Helper()
	enough := l.calls.Load() + 400
	if testing.Short() {
		enough -= 250
	}
	if err := eventually(ctx, func(context.Context) error {
		if n := l.calls.Load(); n < enough {
			return fmt.Errorf("%d calls of %d", n, enough)
		}
		return nil
	}); err != nil {
		l.t.Error(err)
	}
}

// end ends the load. All that was acknowledged is in both processes, and nothing else.
func (l *load) end(ctx context.Context) {
	l.t.Helper()
	l.stop()
	slowest := l.slowest[0]
	for _, s := range l.slowest {
		slowest.publish, slowest.read = max(slowest.publish, s.publish), max(slowest.read, s.read)
	}
	l.t.Logf("%d calls, %d made again at the second address; publishing took %v at most, reading %v",
		l.calls.Load(), l.again.Load(), slowest.publish, slowest.read)
	if l.t.Failed() {
		return
	}
	position, err := l.r.publish(ctx, 0, namedFollow("last", l.user))
	if err != nil {
		l.t.Fatal(err)
	}
	l.r.demandFollowers(ctx, l.t, l.user, append(slices.Concat(l.acked[:]...), "last"), position)
}

// natsServersStop stops the NATS server that leads the log under load, and starts it again; in a
// long test, the one that leads it then, too. A process that must find another server, or waits for
// one to be elected, may say that it is not available. It may neither refuse a position that the
// other gave, nor answer without what that contains.
func (r *replicas) natsServersStop(ctx context.Context, t *testing.T) {
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	l := r.startLoad(ctx, t, "star", true)
	for range rounds {
		l.more(ctx)
		down, err := r.cluster.leader(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r.cluster.stop(down)
		l.more(ctx)
		r.cluster.start(down)
		l.more(ctx)
	}
	l.end(ctx)
	envs, err := r.cluster.envelopes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	inLog := map[string]int{}
	for _, env := range envs {
		for _, ev := range env.GetEvents() {
			inLog[ev.GetUserFollowed().GetUserId()]++
		}
	}
	for _, follower := range slices.Concat(l.acked[:]...) {
		if _, twice := l.repeated.Load(follower); inLog[follower] != 1 && !twice {
			t.Errorf("the log has %s %d times", follower, inLog[follower])
		}
	}
}

// pagesFromBoth reads a list page by page, each from the process that did not answer the last,
// while others come and go in it. The same with a scan.
func (r *replicas) pagesFromBoth(ctx context.Context, t *testing.T) {
	stay, churn, sessions := 3600, 60, 4
	if testing.Short() {
		stay, sessions = 2400, 2
	}
	// Those who come and go stand among those who stay.
	var evs []*skeinv1.Event
	for n := range stay {
		evs = append(evs, userFollowed(fmt.Sprint("stay", n), "board"))
		if n%(stay/churn) == 0 {
			evs = append(evs, userFollowed(fmt.Sprint("churn", n/(stay/churn)), "board"))
		}
	}
	var position string
	for part := range slices.Chunk(evs, 1000) {
		var err error
		if position, err = r.publish(ctx, 0, part...); err != nil {
			t.Fatal(err)
		}
	}
	churning, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	var changes atomic.Int64
	for w := range 2 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for churning.Err() == nil {
				follower := fmt.Sprint("churn", w+2*rng.IntN(churn/2))
				ev := unfollow(follower, "board")
				if rng.IntN(2) == 0 {
					ev = userFollowed(follower, "board")
				}
				if _, err := r.publish(ctx, rng.IntN(2), ev); err != nil {
					t.Error(err)
					return
				}
				changes.Add(1)
			}
		})
	}
	defer stop()

	pages := 0
	for session := range sessions {
		var seen []string
		req := &skeinv1.ListFollowersRequest{UserId: "board", PageSize: int32(20 + 13*session), AtLeast: position}
		for i := session; ; i++ {
			before := changes.Load()
			res, err := r.apis[i%2].Graph().ListFollowers(ctx, connect.NewRequest(req))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range res.Msg.GetEntries() {
				seen = append(seen, e.GetUserId())
			}
			pages++
			req.AtLeast = "" // the token says more
			if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
				break
			}
			// No two pages from one state: the list has changed in between.
			if err := eventually(ctx, func(context.Context) error {
				if changes.Load() == before {
					return errors.New("nothing changes")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		demandSession(t, seen, stay)
	}

	// One message of each scan, then on with the other process. The last message is the one without
	// entries.
	parts := 0
	var seen []string
	for i, token := 0, ""; ; i++ {
		part, err := r.scanPart(ctx, i%2, token, position)
		if err != nil {
			t.Fatal(err)
		}
		if len(part.GetEntries()) == 0 {
			break
		}
		for _, e := range part.GetEntries() {
			seen = append(seen, e.GetUserId())
		}
		token = part.GetResumeToken()
		parts++
	}
	demandSession(t, seen, stay)
	t.Logf("%d pages in %d sessions, a scan in %d parts, %d changes", pages, sessions, parts, changes.Load())
	if parts < 3 {
		t.Errorf("the scan had %d parts: it did not alternate", parts)
	}
}

// scanPart begins a scan at one process, takes its first message and breaks it off.
func (r *replicas) scanPart(ctx context.Context, i int, token, atLeast string) (*skeinv1.ScanFollowersResponse, error) {
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

// demandSession demands that a session has every user who stayed, in order and once, and no other
// user twice.
func demandSession(t *testing.T, seen []string, stay int) {
	t.Helper()
	next := stay - 1 // the newest first
	times := map[string]int{}
	for _, id := range seen {
		if times[id]++; times[id] > 1 {
			t.Errorf("%s is there %d times", id, times[id])
		}
		if !strings.HasPrefix(id, "stay") {
			continue
		}
		if id != fmt.Sprint("stay", next) {
			t.Errorf("%s stands where stay%d should", id, next)
		}
		next--
	}
	if next != -1 {
		t.Errorf("the session ends before stay%d", next)
	}
}

// rollingRestart restarts the processes one after the other under load.
func (r *replicas) rollingRestart(ctx context.Context, t *testing.T) {
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	l := r.startLoad(ctx, t, "rolling", false)
	for range rounds {
		r.roll(ctx, t, l, "")
	}
	l.end(ctx)
}

// roll restarts the processes one after the other under a load, with a program.
func (r *replicas) roll(ctx context.Context, t *testing.T, l *load, program string) {
	t.Helper()
	for i, s := range r.servers {
		l.more(ctx)
		if err := s.stopInOrder(); err != nil {
			t.Errorf("process %d ended with %v", i, err)
		}
		l.more(ctx)
		s.program = program
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	l.more(ctx)
}

// killedAndEmptied kills one process: it continues where its store stands. Then it loses its
// directory: it builds the same again, row for row.
func (r *replicas) killedAndEmptied(ctx context.Context, t *testing.T) {
	stays, dies := 0, 1
	s := r.servers[dies]
	s.kill()
	stands := checkpoint(ctx, t, s)
	var want []string
	for n := range 50 {
		follower := fmt.Sprint("meanwhile", n)
		if _, err := r.publish(ctx, stays, namedFollow(follower, "killed")); err != nil {
			t.Fatal(err)
		}
		want = append(want, follower)
	}
	first, err := r.startAndAsk(ctx, dies)
	if err != nil {
		t.Fatal(err)
	}
	position, err := r.publish(ctx, dies, namedFollow("after", "killed"))
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, "after")
	r.demandFollowers(ctx, t, "killed", want, position)
	t.Logf("killed with its store at %d, it began at %d", stands, first)
	if stands == 0 || first < stands {
		t.Errorf("with a store at %d it began at %d", stands, first)
	}

	if err := s.stopInOrder(); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "data")); err != nil {
		t.Fatal(err)
	}
	if first, err = r.startAndAsk(ctx, dies); err != nil {
		t.Fatal(err)
	}
	t.Logf("with an empty directory it began at %d", first)
	r.demandFollowers(ctx, t, "killed", want, position)
	if position, err = r.publish(ctx, dies, namedFollow("rebuilt", "killed")); err != nil {
		t.Fatal(err)
	}
	r.demandFollowers(ctx, t, "killed", append(want, "rebuilt"), position)
	if err := both(func(i int) error { return r.servers[i].stopInOrder() }); err != nil {
		t.Error(err)
	}
	stores := [2][]byte{inspectRows(ctx, t, r.servers[stays]), inspectRows(ctx, t, r.servers[dies])}
	if !bytes.Equal(stores[0], stores[1]) {
		lines := [2][]string{strings.Split(string(stores[0]), "\n"), strings.Split(string(stores[1]), "\n")}
		t.Errorf("built live and built again (-live +again):\n%s", gocmp.Diff(lines[0], lines[1]))
	}
	t.Logf("%d rows, the same in both", bytes.Count(stores[0], []byte("\n")))
	if at := checkpoint(ctx, t, s); at <= stands {
		t.Errorf("the store was stopped in order at %d", at)
	}
}

// startAndAsk starts a process and returns the position of the first answer that it gives at all,
// which is that of its store when it was opened, or a little later.
func (r *replicas) startAndAsk(ctx context.Context, i int) (first uint64, err error) {
	url := "http://" + r.servers[i].addr + "/metrics"
	var wg sync.WaitGroup
	var asked error
	wg.Go(func() {
		asked = eventually(ctx, func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			res, err := r.apis[i].HTTP.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil {
				return err
			}
			first, err = firstNumber(text, `(?m)^skein_projection_position\{projection="graph"\} (\S+)$`)
			return err
		})
	})
	err = r.servers[i].start(ctx)
	wg.Wait()
	return first, errors.Join(err, asked)
}

// firstNumber finds a whole number in a text.
func firstNumber(text []byte, pattern string) (uint64, error) {
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s is not in %s", pattern, text)
	}
	n, err := strconv.ParseFloat(string(found[1]), 64)
	return uint64(n), err
}

// checkpoint returns the position of the store of a process that does not run.
func checkpoint(ctx context.Context, t *testing.T, s *server) uint64 {
	t.Helper()
	seq, err := firstNumber(inspectRows(ctx, t, s, "--kind", "checkpoint"), ` seq=(\d+) `)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// inspectRows returns the rows of the store of a process that does not run.
func inspectRows(ctx context.Context, t *testing.T, s *server, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(ctx, "skein", append([]string{"inspect", filepath.Join(s.dir, "data")}, args...)...)
	var bad bytes.Buffer
	cmd.Stderr = &bad
	rows, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &bad)
	}
	return rows
}
