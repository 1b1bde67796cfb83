package seen

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/hiddenitems"
)

// State has the rows of a seen store at one position. A [projections.View] is one.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers questions about a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	state    State
	settings Settings
}

// Query returns the queries over a state of a seen store that was folded with the settings.
func Query(r State, s Settings) *Queries { return &Queries{state: r, settings: s} }

// Question says what candidates are compared with.
type Question struct {
	User string
	// Window is how many calendar months count, including the month of the state's position. 0
	// means the default of the settings. A window longer than the retention is shortened to the
	// retention.
	Window int
	// IgnoreServed compares with plays only, and not with the items that were served last.
	IgnoreServed bool
	// IgnoreHidden does not take the items that the user hides for seen.
	IgnoreHidden bool
}

// Filter appends to unseen the indexes of the items that the user has not seen and does not hide,
// in rising order. It also returns how many months of plays it has read. An item that was seen is
// never among them (I10). An item that was not seen is missing with a probability of at most
// [Settings.FalsePositives] for the default window, and of a proportional one for other windows.
//
// Filter costs one point read for the current month and two for each earlier one, the decoding of
// rows that are not Bloom filters, and some 10 to 40 ns per item.
func (q *Queries) Filter(question Question, items []string, unseen []uint32) (out []uint32, months int, err error) {
	p := getProbe(userSalt(question.User), len(items))
	defer p.release()
	for i, item := range items {
		var hash uint64
		hash, p.key = itemHash(p.key, item)
		p.fingerprints[i] = fingerprintOf(hash, p.salt)
	}
	return q.filter(question, p, unseen, func(i uint32) string { return items[i] })
}

// FilterNumeric is [Queries.Filter] for items whose ids are decimal numbers: 42 is the item "42".
func (q *Queries) FilterNumeric(question Question, items []uint64, unseen []uint32) (out []uint32, months int, err error) {
	p := getProbe(userSalt(question.User), len(items))
	defer p.release()
	for i, item := range items {
		p.fingerprints[i] = fingerprintOf(item, p.salt)
	}
	return q.filter(question, p, unseen, func(i uint32) string { return strconv.FormatUint(items[i], 10) })
}

// filter answers a question about the candidates whose fingerprints are in p. item returns a
// candidate by its index.
func (q *Queries) filter(question Question, p *probe, unseen []uint32, item func(i uint32) string) (out []uint32, months int, err error) {
	window := question.Window
	if window <= 0 {
		window = q.settings.Window
	}
	window = min(window, q.settings.Retention) // older months are deleted at some time, so they must not count

	var c calendar
	current := c.monthOf(q.state.Cursor().LastTime)
	for m := int(current); m > int(current)-window && m >= 0; m-- {
		isOver := m < int(current)
		if err := q.addMonth(p, month(m), isOver, question.User); err != nil {
			return unseen, 0, err
		}
		months++
	}
	if !question.IgnoreServed {
		if err := q.addServed(p, question.User); err != nil {
			return unseen, 0, err
		}
	}

	// Hidden items are looked up last, with a read for each candidate that is left.
	p.findUnseen()
	if !question.IgnoreHidden {
		if err := q.dropHidden(p, question.User, item); err != nil {
			return unseen, 0, err
		}
	}
	return append(unseen, p.unseen...), months, nil
}

// dropHidden removes the candidates that the user hides from those that were not found so far. A
// user who hides nothing costs one point read.
func (q *Queries) dropHidden(p *probe, user string, item func(i uint32) string) error {
	n, err := hiddenItems.CountOf(q.state, user)
	if err != nil || n == 0 {
		return err
	}
	p.unseen = slices.DeleteFunc(p.unseen, func(i uint32) bool {
		hidden, readErr := hiddenItems.Hides(q.state, &p.key, user, item(i))
		err = errors.Join(err, readErr)
		return hidden
	})
	return err
}

// HiddenItem is an item that a user hides, and since when.
type HiddenItem = hiddenitems.Item

// ErrHiddenCursor is returned for bytes that are not a cursor of [Queries.Hidden].
var ErrHiddenCursor = hiddenitems.ErrCursor

// Hidden lists at most n items that a user hides, newest first, equal times by id. after is the
// cursor of the page; nil means the first page. next is the cursor of the next page, or nil on the
// last one.
func (q *Queries) Hidden(ctx context.Context, user string, after []byte, n int) (items []HiddenItem, next []byte, err error) {
	return hiddenItems.Page(ctx, q.state, user, after, n)
}

// HiddenCount returns how many items a user hides: the length of the list of [Queries.Hidden].
func (q *Queries) HiddenCount(user string) (int64, error) {
	return hiddenItems.CountOf(q.state, user)
}

// HidesItem reports whether a user hides an item.
func (q *Queries) HidesItem(user, item string) (bool, error) {
	var key []byte
	return hiddenItems.Hides(q.state, &key, user, item)
}

// addMonth adds the plays of a month to the probe. isOver says that the month had ended at the
// position of the state.
func (q *Queries) addMonth(p *probe, m month, isOver bool, user string) error {
	p.key = monthKey(p.key[:0], m, tagPlays, user)
	row, ok, err := q.state.Get(p.key)
	if err != nil {
		return err
	}
	if ok {
		if err := p.addFingerprints(row); err != nil {
			return err
		}
	}

	// A month is sealed only after it has ended, so the current month, which every question is
	// about, costs one read.
	if !isOver {
		return nil
	}

	// The keys of the two rows of a month differ in the tag only, which follows the two bytes of
	// the month.
	p.key[2] = byte(tagSealed)
	row, ok, err = q.state.Get(p.key)
	if err != nil || !ok {
		return err
	}
	return p.addBloom(row)
}

// addServed adds the items that were served last to the probe.
func (q *Queries) addServed(p *probe, user string) error {
	serves, err := q.readServes(user, &p.key)
	if err != nil {
		return err
	}
	p.beginSet()
	for _, s := range serves {
		p.values = append(p.values, fingerprintOf(idKeyHash(s.item), p.salt))
	}
	p.endSet(false) // serves are sorted by time
	return nil
}

// readServes returns the serves of a user. key is scratch memory for the key of the row.
func (q *Queries) readServes(user string, key *[]byte) ([]serve, error) {
	*key = servedKey((*key)[:0], user)
	row, ok, err := q.state.Get(*key)
	if err != nil || !ok {
		return nil, err
	}
	return decodeServes(nil, row)
}

// Served lists the last 100 items that were served to a user, each once, the newest first.
func (q *Queries) Served(user string) ([]string, error) {
	var key []byte
	serves, err := q.readServes(user, &key)
	if err != nil {
		return nil, err
	}

	items := make([]string, len(serves))
	for i, s := range serves {
		if items[i], _, err = events.CutID(s.item); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// probes are reused by later questions, because the memory of a probe is most of what an answer
// allocates.
var probes = sync.Pool{New: func() any { return new(probe) }} //nolint:gochecknoglobals // memory only

// getProbe returns an empty probe for n candidates. The caller must release it.
func getProbe(salt uint64, n int) *probe {
	p, _ := probes.Get().(*probe)
	p.reset(salt, n)
	return p
}

// maxPooledProbeBytes is the most memory, in bytes, of a probe that is kept for later questions. A
// single question about very many plays must not hold its memory for as long as the process runs.
const maxPooledProbeBytes = 8 << 20

func (p *probe) release() {
	if p.memoryBytes() <= maxPooledProbeBytes {
		probes.Put(p)
	}
}
