package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

// fakeKey is a key of a fakeRedis. It has pairs of members and scores, or of fields and values; or
// members or elements.
type fakeKey struct {
	is       structure
	elements []string
}

// fakeRedis behaves like a Redis in its scans: the order of the keys is different in every run of
// the server, pages are small, and elements may be returned twice. fail is called before each
// command.
type fakeRedis struct {
	keys map[string]fakeKey
	run  uint64
	// unnamed makes the server not tell its runs apart.
	unnamed  bool
	commands int
	fail     func(command int) error
}

func (r *fakeRedis) command() error {
	r.commands++
	if r.fail == nil {
		return nil
	}
	return r.fail(r.commands)
}

func (r *fakeRedis) runID(context.Context) (string, error) {
	if r.unnamed {
		return "", r.command()
	}
	return fmt.Sprint("run ", r.run), r.command()
}

func (r *fakeRedis) size(context.Context) (int64, error) { return int64(len(r.keys)), r.command() }

// order returns the keys in their order in this run of the server.
func (r *fakeRedis) order() []string {
	var names []string
	for name := range r.keys {
		names = append(names, name)
	}
	slices.Sort(names)
	rng := rand.New(rand.NewPCG(r.run, 0))
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

func (r *fakeRedis) scan(_ context.Context, cursor uint64, _ string) ([]string, uint64, error) {
	if err := r.command(); err != nil {
		return nil, 0, err
	}
	names := r.order()
	from := max(int(cursor)-1, 0) // one again
	to := min(int(cursor)+3, len(names))
	next := uint64(to)
	if to == len(names) {
		next = 0
	}
	return names[min(from, to):to], next, nil
}

func (r *fakeRedis) types(_ context.Context, keys []string) ([]string, error) {
	types := make([]string, len(keys))
	for i, key := range keys {
		types[i] = cmp.Or(string(r.keys[key].is), "none")
	}
	return types, r.command()
}

func (r *fakeRedis) readPages(_ context.Context, of []pageRequest) ([]page, error) {
	pages := make([]page, len(of))
	for i, p := range of {
		all := r.keys[p.key].elements
		to := min(int(p.cursor)+4, len(all))
		if pages[i].elements = all[p.cursor:to]; to < len(all) {
			pages[i].next = uint64(to)
		}
	}
	return pages, r.command()
}

// fakeLog accepts events as the service does: it appends an event, and ignores it if its offset is
// not above the highest one of its source and kind. Every play counts, as in the service.
type fakeLog struct {
	t       *testing.T
	calls   int
	taken   map[string]int
	highest map[string]uint64
	fail    func(call int) (before, after error)
}

func newFakeLog(t *testing.T) *fakeLog {
	return &fakeLog{t: t, taken: map[string]int{}, highest: map[string]uint64{}}
}

func (l *fakeLog) publish(_ context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	l.calls++
	var before, after error
	if l.fail != nil {
		before, after = l.fail(l.calls)
	}
	if before != nil {
		return nil, before
	}
	if n := len(req.GetEvents()); n == 0 || n > events.MaxEnvelopeEvents || proto.Size(req) > events.MaxEnvelopeBytes {
		l.t.Errorf("a call of %d events, %d bytes", n, proto.Size(req))
	}
	res := &skeinv1.PublishResponse{Position: fmt.Sprint("after call ", l.calls)}
	for i, ev := range req.GetEvents() {
		flat, refused := events.FromProto(ev)
		if refused != nil {
			l.t.Errorf("%v: %v", ev, refused)
			continue
		}
		res.AcceptedCount++
		key := fmt.Sprint(flat.Source, flat.Kind)
		if flat.Offset > l.highest[key] {
			l.highest[key] = flat.Offset
			l.taken[describeEvent(&flat)]++
		} else {
			res.RepeatedIndexes = append(res.RepeatedIndexes, int32(i))
		}
	}
	return res, after
}

// describeEvent describes an event in one line, without its source and offset.
func describeEvent(ev *events.Event) string {
	return fmt.Sprintf("%v %s %s %s %s %s %v %s %s", ev.Kind, ev.User, ev.Peer, ev.Board, ev.Pin, ev.Item, ev.Items, ev.Title,
		ev.Time.Time().Format(time.RFC3339Nano))
}

var errBroken = errors.New("interrupted")

var start = time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)

const plainMapping = `rules:
- {means: follows, key: "followers:{user}", member: "{follower}", score: s}
- {means: follows, key: "following:{follower}", member: "{user}"}
- {means: plays, key: "plays:{user}", field: "{item}", value: "{time:ms}"}
- {means: reactions, key: "likes:{item}", member: "{user}"}
- {means: served, key: "served:{user}", element: "{item}"}
`

// newTestRun returns a run of an import from a fake Redis into a fake log.
func newTestRun(t *testing.T, r *fakeRedis, l *fakeLog) *importRun {
	t.Helper()
	o := Options{
		Mapping: mustParse(t, plainMapping), Name: "m.yaml", State: t.TempDir(),
		PublishOptions: importer.PublishOptions{
			LogID: "log", Publish: l.publish, Patience: time.Minute, Now: func() time.Time { return start },
		},
	}
	if err := o.setDefaultsAndCheck(); err != nil {
		t.Fatal(err)
	}
	return &importRun{Options: o, keyspace: r, serverName: "fake"}
}

// again returns another run of the same import, as in a new process.
func (r *importRun) again() *importRun {
	return &importRun{Options: r.Options, keyspace: r.keyspace, serverName: r.serverName, maxRecords: r.maxRecords}
}

func mustRun(t *testing.T, r *importRun) *Report {
	t.Helper()
	report, err := r.readAndPublish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}
