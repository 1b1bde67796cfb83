package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// damageStep is the distance between two bytes that TestDamagedByteGivesNoWrongAnswer damages at
// full length. The short test damages every shortDamageStep-th byte, and some of the last kilobyte
// of each table, which has its index, properties, filter and footer.
const (
	damageStep      = 16
	shortDamageStep = 251 * damageStep
	tableEndBytes   = 1 << 10
)

// TestDamagedByteGivesNoWrongAnswer damages one byte of a file of a store at a time, opens the
// store as the service does, runs queries, folds more of the log, and runs the queries again.
// Nothing may panic. Every answer must be that of the undamaged store, or an error. A store that
// returned an error must report that it is damaged, so that the service rebuilds it, and after a
// rebuild it must answer correctly.
func TestDamagedByteGivesNoWrongAnswer(t *testing.T) {
	t.Parallel()
	log := damageLog()
	questions := map[string][]question{
		"graph": graphQuestions(), "inbox": inboxQuestions(), "seen": seenQuestions(), "counters": countersQuestions(),
		"notifications": notificationQuestions(),
	}
	for _, newProjection := range all.Constructors(all.Settings{}) {
		name := newProjection().Name()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sweep := newDamageSweep(t, newProjection, log, questions[name])
			for _, file := range sweep.files() {
				for _, offset := range damagedBytes(file) {
					sweep.damage(file.name, offset)
				}
			}

			t.Logf("%s: %s", name, sweep.outcomes)
			if o := sweep.outcomes; o.refused == 0 || o.failed == 0 || o.unnoticed == 0 {
				t.Errorf("got outcomes %s, want some stores that cannot be opened, some that fail later, and some that are not impaired", o)
			}
		})
	}
}

// damagedBytes returns the offsets of the bytes of a file to damage.
func damagedBytes(file storeFile) (offsets []int) {
	for offset := 0; offset < len(file.content); offset += damageStep {
		isTableEnd := strings.HasSuffix(file.name, ".sst") && offset >= len(file.content)-tableEndBytes
		if !testing.Short() || isTableEnd && offset%(16*damageStep) == 0 || offset%shortDamageStep == 0 {
			offsets = append(offsets, offset)
		}
	}
	return offsets
}

// damageLog returns a log whose rows take several blocks of a table in every store.
func damageLog() []*events.Envelope {
	const users, envelopes = 40, 24
	l := &logWriter{time: events.Micros(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMicro())}
	var log []*events.Envelope
	for n := range envelopes {
		var evs []events.Event
		for i := range users {
			user := damageUser(i)
			item := fmt.Sprintf("item-%d-%d", n, i)
			evs = append(evs,
				events.Event{Kind: events.UserFollowed, User: user, Peer: damageUser((i + 1 + n) % users)},
				events.Event{Kind: events.PinCreated, User: user, Pin: item, Item: item},
				events.Event{Kind: events.Played, User: user, Item: item},
				events.Event{Kind: events.Reacted, User: damageUser(0), Item: item, RepinUser: user, RepinPin: item},
				events.Event{
					Kind: events.Reacted, User: user, Item: "item-0-0", Reaction: fmt.Sprintf("k%d", n),
					RepinUser: damageUser(0), RepinPin: "item-0-0",
				},
			)
		}
		log = append(log, l.envelope(evs...))
	}
	return log
}

func damageUser(i int) string { return fmt.Sprintf("user-%d", i) }

// damageSweep damages copies of one store.
type damageSweep struct {
	t             *testing.T
	newProjection func() projections.Projection
	// log is the whole log. folded is the number of its envelopes that the store on disk has
	// folded.
	log    []*events.Envelope
	folded int
	// questions are the queries that are run. Each damaged store begins with another one, because
	// after the first that fails, the store has stopped.
	questions []question
	// rebuilt has the names of the files whose damage has led to a rebuild. The test rebuilds only
	// once per file, because a rebuild takes longer than everything else.
	rebuilt map[string]bool
	// store is the undamaged file system, and rows has the rows of the store. before and after are
	// the correct answers at the position of the store and at the end of the log.
	store         *vfs.MemFS
	rows          Rows
	before, after []answer

	// at describes the damaged byte, for failures.
	at       string
	outcomes damageOutcomes
}

// damageOutcomes counts how damaged stores behaved.
type damageOutcomes struct {
	// flips is the number of bytes that were damaged one at a time.
	flips int
	// refused is the number of stores that could not be opened, failed the number of stores with an
	// error of a query or of the fold, and unnoticed the number of stores that behaved as if they
	// were not damaged.
	refused, failed, unnoticed int
	// unreadable is the number of stores whose rows a command could not read while the store was
	// not open.
	unreadable int
	// right, wrong and errors are numbers of answers.
	right, wrong, errors int
}

func (o damageOutcomes) String() string {
	return fmt.Sprintf(
		"%d bytes damaged: %d stores could not be opened, %d failed later, %d were not impaired, %d could not be read offline; "+
			"%d answers were right, %d wrong, %d errors",
		o.flips, o.refused, o.failed, o.unnoticed, o.unreadable, o.right, o.wrong, o.errors,
	)
}

// newDamageSweep makes the undamaged store: tables of a build in the lowest levels, and above them
// one for each of two openings. There are too few for a compaction, so the files are the same in
// every run.
func newDamageSweep(
	t *testing.T, newProjection func() projections.Projection, log []*events.Envelope, questions []question,
) *damageSweep {
	t.Helper()
	const built, folded = 12, 16
	d := &damageSweep{
		t: t, newProjection: newProjection, log: log, folded: len(log) - 4, questions: questions,
		store: vfs.NewMem(), rebuilt: map[string]bool{},
	}
	buildPrefix(t, d.buildOptions(d.store, d.dir()), History{Envelopes: log}, built)
	for _, part := range [][]*events.Envelope{log[built:folded], log[folded:d.folded]} {
		serving := d.open(d.store)
		if err := errors.Join(serving.Serving().Fold(part), serving.Flush(), serving.Close()); err != nil {
			t.Fatal(err)
		}
	}

	// The answers of an undamaged copy, at the position of the store and at the end of the log.
	serving := d.open(d.clone())
	d.rows = RowsOf(t, serving.Serving())
	d.before = d.runQuestions(serving)
	if err := serving.Serving().Fold(log[d.folded:]); err != nil {
		t.Fatal(err)
	}
	d.after = d.runQuestions(serving)
	if err := serving.Close(); err != nil {
		t.Fatal(err)
	}
	for _, answer := range slices.Concat(d.before, d.after) {
		if answer.err != nil {
			t.Fatal(answer.err)
		}
	}
	return d
}

// open opens the store as the service does.
func (d *damageSweep) open(fs store.FS) *live.Live {
	d.t.Helper()
	serving, err := live.Open(live.Options{
		New: d.newProjection, Options: store.Options{FS: fs, Dir: dataDir, Bounds: store.Bounds{FlushBytes: 256 << 10}},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return serving
}

// dir returns the directory of the live generation.
func (d *damageSweep) dir() string {
	return d.store.PathJoin("data", d.newProjection().Name(), "000001")
}

func (d *damageSweep) buildOptions(fs store.FS, dir string) build.Options {
	return build.Options{FS: fs, Dir: dir, New: d.newProjection, Workers: 1}
}

// clone returns a copy of the undamaged file system.
func (d *damageSweep) clone() *vfs.MemFS {
	d.t.Helper()
	fs := vfs.NewMem()
	ok, err := vfs.Clone(d.store, fs, "data", "data")
	if err != nil {
		d.t.Fatalf("copy the store: %v", err)
	}
	if !ok {
		d.t.Fatal("got no copy of the directory data, want one")
	}
	return fs
}

// storeFile is a file of the live generation.
type storeFile struct {
	name    string
	content []byte
}

// files returns the files of the store that have content: tables, manifests and options.
func (d *damageSweep) files() (files []storeFile) {
	d.t.Helper()
	names, err := d.store.List(d.dir())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, name := range names {
		name = d.store.PathJoin(d.dir(), name)
		f, err := d.store.Open(name)
		if err != nil {
			d.t.Fatal(err)
		}
		content, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			d.t.Fatal(err)
		}
		files = append(files, storeFile{name, content})
	}
	return files
}

// damage flips one bit of a file in a copy of the store, and checks what the copy answers.
func (d *damageSweep) damage(name string, offset int) {
	d.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			d.t.Errorf("%s, byte %d: got panic %v, want none", name, offset, r)
		}
	}()
	d.at = fmt.Sprintf("%s, byte %d", name, offset)
	fs := d.clone()
	d.flip(fs, name, offset)
	d.outcomes.flips++
	d.readOffline(fs)

	// Ask the questions at the position of the store, and again at the end of the log.
	serving := d.open(fs)
	defer func() {
		// Close may return again the error that has stopped the store.
		_ = serving.Close()
	}()
	store := serving.Serving()
	errorsBefore := d.outcomes.errors
	d.check(d.runQuestions(serving), d.before)
	var foldErr error
	if store != nil {
		foldErr = errors.Join(store.Fold(d.log[d.folded:]), store.Flush())
		if foldErr == nil {
			d.check(d.runQuestions(serving), d.after)
		}
	}

	switch {
	case store == nil:
		d.outcomes.refused++
	case foldErr != nil || d.outcomes.errors > errorsBefore:
		d.outcomes.failed++
	default:
		d.outcomes.unnoticed++
		return
	}

	// A store that returned an error must report the damage, and answer correctly after a rebuild.
	if st := serving.Status(); !st.Damaged {
		d.t.Errorf("%s: got state %v, error %v, fold error %v, want a status that is damaged",
			d.at, st.State, st.Error, foldErr)
		return
	}
	if !d.rebuilt[name] {
		d.rebuilt[name] = true
		d.rebuild(serving)
		d.check(d.runQuestions(serving), d.after)
	}
}

// flip flips one bit of a byte. Which bit it is depends on the offset.
func (d *damageSweep) flip(fs store.FS, name string, offset int) {
	d.t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		d.t.Fatal(err)
	}

	var b [1]byte
	_, readErr := f.ReadAt(b[:], int64(offset))
	b[0] ^= 1 << (offset / damageStep % 8)
	_, writeErr := f.WriteAt(b[:], int64(offset))
	if err := errors.Join(readErr, writeErr, f.Close()); err != nil {
		d.t.Fatal(err)
	}
}

// readOffline reads all rows of a store that no service has open, as commands such as inspect do.
// It must return the right rows or an error.
func (d *damageSweep) readOffline(fs store.FS) {
	d.t.Helper()
	store, err := store.Open(store.Options{
		FS: fs, Dir: dataDir, Projection: d.newProjection(), Partitioned: true, ReadOnly: true,
	})
	if err != nil {
		d.outcomes.unreadable++
		return
	}
	defer func() { _ = store.Close() }() // may return again the error that has stopped the store
	rows, err := readRows(store)
	if err != nil {
		d.outcomes.unreadable++
		return
	}
	if diff := rows.Diff(d.rows); diff != "" {
		d.t.Errorf("%s: the rows that are read offline differ from those of the undamaged store:\n%s", d.at, diff)
	}
}

// rebuild builds the next generation from the log and cuts over to it.
func (d *damageSweep) rebuild(serving *live.Live) {
	d.t.Helper()
	next, err := serving.BuildNext(d.t.Context(), func(dir string) error {
		b, err := build.New(d.buildOptions(serving.FS(), dir))
		if err != nil {
			return err
		}
		return errors.Join(b.Add(d.log), b.Finish(d.t.Context()), b.Close())
	})
	if err == nil {
		_, err = serving.CutOver(d.t.Context(), next)
	}
	if err != nil {
		d.t.Errorf("%s: rebuild: %v", d.at, err)
	}
}

// question is a query that a method of the API runs.
type question struct {
	text string
	ask  func(*projections.View) (any, error)
}

// answer is the result of a question, as text.
type answer struct {
	text string
	err  error
}

// runQuestions runs all questions, each with a view of its own, and returns the answers in the
// order of the questions.
func (d *damageSweep) runQuestions(serving *live.Live) []answer {
	d.t.Helper()
	answers := make([]answer, len(d.questions))

	// Begin with another question for each damaged store.
	for i := range answers {
		n := (d.outcomes.flips + i) % len(answers)
		view, err := serving.View()
		if err != nil {
			answers[n].err = err
			continue
		}
		value, err := d.questions[n].ask(view)
		answers[n] = answer{fmt.Sprintf("%+v", value), err}
		if err := view.Close(); err != nil {
			d.t.Errorf("%s: close the view after %s: %v", d.at, d.questions[n].text, err)
		}
	}
	return answers
}

// check counts the answers, and fails the test for a wrong one.
func (d *damageSweep) check(got, want []answer) {
	d.t.Helper()
	for i, expected := range want {
		switch {
		case got[i].err != nil:
			d.outcomes.errors++
		case got[i] != expected:
			// Only the first wrong answers are reported. The log of the test has their number.
			d.outcomes.wrong++
			if d.outcomes.wrong <= 3 {
				d.t.Errorf("%s: %s\ngot  %.400s\nwant %.400s", d.at, d.questions[i].text, got[i].text, expected.text)
			}
		default:
			d.outcomes.right++
		}
	}
}

func graphQuestions() (questions []question) {
	for _, i := range []int{0, 7, 23} {
		user := damageUser(i)
		for _, kind := range []graph.ListKind{graph.Following, graph.Followers, graph.Mutuals} {
			questions = append(questions, question{fmt.Sprintf("list %d of %s", kind, user), func(v *projections.View) (any, error) {
				list := graph.List{Kind: kind, User: user, Peer: damageUser(3)}
				page, next, err := graph.NewQueries(v).List(context.Background(), list, nil, 15)
				return []any{page, next}, err
			}})
		}
		questions = append(questions,
			question{"counts of " + user, func(v *projections.View) (any, error) { return graph.NewQueries(v).UserCounts(user) }},
			question{"relationship of " + user, func(v *projections.View) (any, error) {
				return graph.NewQueries(v).Relationship(user, damageUser(i+5))
			}},
		)
	}
	return questions
}

func inboxQuestions() (questions []question) {
	for _, i := range []int{0, 7, 23} {
		user := damageUser(i)
		questions = append(questions,
			question{"feed of " + user, func(v *projections.View) (any, error) {
				return inbox.Query(v).Feed(context.Background(), inbox.Feed{Reader: user}, nil, 50)
			}},
			question{"pins of " + user, func(v *projections.View) (any, error) {
				pins, next, err := inbox.Query(v).Pins(context.Background(), user, nil, nil, 10)
				return []any{pins, next}, err
			}},
			question{"number of pins of " + user, func(v *projections.View) (any, error) { return inbox.Query(v).PinCount(user, nil) }},
			question{"explanation for " + user, func(v *projections.View) (any, error) {
				feed := inbox.Feed{Reader: user}
				explanation, err := inbox.Query(v).Explain(context.Background(), feed, damageUser(i+1), fmt.Sprintf("item-0-%d", i+1))
				return []any{explanation.Pin != nil, explanation.Absence, explanation.Rank, explanation.Delivery}, err
			}},
		)
	}
	return questions
}

func seenQuestions() (questions []question) {
	for _, i := range []int{0, 7, 23} {
		user := damageUser(i)
		items := []string{"item-0-7", "item-1-0", "item-2-23", "item-19-7", "never"}
		questions = append(questions, question{"unseen by " + user, func(v *projections.View) (any, error) {
			unseen, months, err := seen.Query(v, seen.DefaultSettings()).Filter(seen.Question{User: user}, items, nil)
			return []any{unseen, months}, err
		}})
	}
	return questions
}

func notificationQuestions() (questions []question) {
	for _, i := range []int{0, 7, 23} {
		user := damageUser(i)
		questions = append(questions,
			question{"notifications of " + user, func(v *projections.View) (any, error) {
				return notifications.NewQueries(v, notifications.DefaultSettings()).Newest(user, notifications.Reacted)
			}},
			question{"markers of " + user, func(v *projections.View) (any, error) {
				return notifications.NewQueries(v, notifications.DefaultSettings()).Markers(user)
			}},
		)
	}
	return questions
}

func countersQuestions() (questions []question) {
	for _, i := range []int{0, 7, 23} {
		user := damageUser(i)
		questions = append(questions,
			question{"counts of " + user, func(v *projections.View) (any, error) { return counters.NewQueries(v).UserCounts(user) }},
			question{"counts of an item of " + user, func(v *projections.View) (any, error) {
				return counters.NewQueries(v).ItemCounts(fmt.Sprintf("item-%d-%d", i%16, i))
			}},
			question{"trending of " + user, func(v *projections.View) (any, error) {
				list, next, err := counters.NewQueries(v).Trending(context.Background(), counters.Scope{Owner: user}, nil, 10)
				return []any{list, next}, err
			}},
		)
	}
	return append(questions, question{"reactions", func(v *projections.View) (any, error) {
		items, next, err := counters.NewQueries(v).Reactions(context.Background(), damageUser(0), "", nil, 30)
		return []any{items, next}, err
	}})
}
