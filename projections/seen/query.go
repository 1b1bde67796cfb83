package seen

import (
	"sync"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// State is the rows of a seen store at one position, as a [projections.View] is.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers from a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	r        State
	settings Settings
}

// Query returns the queries over a state of a seen store that was folded with the settings.
func Query(r State, s Settings) *Queries { return &Queries{r: r, settings: s} }

// Question is what candidates are held against.
type Question struct {
	User string
	// Window is how many calendar months count, that of the position included; 0 means the default of the settings. It is cut
	// to the retention.
	Window int
	// IgnoreServed looks at plays only, not at what was served last.
	IgnoreServed bool
}

// Filter appends the indexes of those items that the user has not seen, rising, and reports how many months of plays were
// looked at. An item that was seen is never among them (I10); one that was not is missing with a probability of at most
// [Settings.FalsePositives] over the default window, and in proportion over others.
//
// It costs two point reads a month, the decoding of what is not in Bloom filters, and some 10 to 40 ns an item.
func (q *Queries) Filter(x Question, items []string, unseen []uint32) (out []uint32, months int, err error) {
	p := takeProbe(userSalt(x.User), len(items))
	defer p.give()
	for i, item := range items {
		var hash uint64
		hash, p.key = itemHash(p.key, item)
		p.fingerprints[i] = printOf(hash, p.salt)
	}
	return q.filter(x, p, unseen)
}

// FilterNumeric is [Queries.Filter] of items whose ids are decimal numbers: 42 is the item "42".
func (q *Queries) FilterNumeric(x Question, items []uint64, unseen []uint32) (out []uint32, months int, err error) {
	p := takeProbe(userSalt(x.User), len(items))
	defer p.give()
	for i, item := range items {
		p.fingerprints[i] = printOf(item, p.salt)
	}
	return q.filter(x, p, unseen)
}

func (q *Queries) filter(x Question, p *probe, unseen []uint32) (out []uint32, months int, err error) {
	window := x.Window
	if window <= 0 {
		window = q.settings.Window
	}
	window = min(window, q.settings.Retention)
	var c calendar
	current := c.of(q.r.Cursor().LastTime)
	for m := int(current); m > int(current)-window && m >= 0; m-- {
		if err := q.readMonth(p, month(m), x.User); err != nil {
			return unseen, 0, err
		}
		months++
	}
	if !x.IgnoreServed {
		if err := q.readServed(p, x.User); err != nil {
			return unseen, 0, err
		}
	}
	p.sift()
	return append(unseen, p.left...), months, nil
}

// readMonth adds the plays of a month to what is probed.
func (q *Queries) readMonth(p *probe, m month, user string) error {
	p.key = monthKey(p.key[:0], m, tagOpen, user)
	row, ok, err := q.r.Get(p.key)
	if err != nil {
		return err
	}
	if ok {
		if err := p.addFingerprints(row); err != nil {
			return err
		}
	}
	p.key[2] = byte(tagSealed)
	row, ok, err = q.r.Get(p.key)
	if err != nil || !ok {
		return err
	}
	return p.addBloom(row)
}

func (q *Queries) readServed(p *probe, user string) error {
	serves, err := q.serves(user, &p.key)
	if err != nil {
		return err
	}
	p.begin()
	for _, s := range serves {
		p.values = append(p.values, printOf(keyHash(s.item), p.salt))
	}
	p.end(false)
	return nil
}

func (q *Queries) serves(user string, key *[]byte) ([]serve, error) {
	*key = servedKey((*key)[:0], user)
	row, ok, err := q.r.Get(*key)
	if err != nil || !ok {
		return nil, err
	}
	return decodeServes(nil, row)
}

// Served lists the last 100 items that were served to a user, each once, newest first.
func (q *Queries) Served(user string) ([]string, error) {
	var key []byte
	serves, err := q.serves(user, &key)
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

// probes are reused by later questions, because the memory of a probe is most of what an answer allocates.
var probes = sync.Pool{New: func() any { return new(probe) }} //nolint:gochecknoglobals // memory only

func takeProbe(salt uint64, n int) *probe {
	p, _ := probes.Get().(*probe)
	p.reset(salt, n)
	return p
}

// maxIdleProbe is the most memory of a probe that is kept, in bytes.
const maxIdleProbe = 8 << 20

func (p *probe) give() {
	if p.memory() <= maxIdleProbe {
		probes.Put(p)
	}
}
