package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/importer"
)

// RuleCounts counts the keys and facts of one rule.
type RuleCounts struct {
	// Rule is the description of the rule.
	Rule string `json:"rule"`
	// Keys and Elements are the numbers of keys and elements that were read. Facts is the number of
	// valid elements, and Rejected the number of the others. A key that a scan returns twice counts
	// twice.
	Keys     uint64 `json:"keys"`
	Elements uint64 `json:"elements"`
	Facts    uint64 `json:"facts"`
	Rejected uint64 `json:"rejected"`
	// Earliest and Latest are the first and the last time of the facts, in microseconds since 1970;
	// 0 if there are none. They show whether the unit is wrong.
	Earliest events.Micros `json:"earliest"`
	Latest   events.Micros `json:"latest"`
}

// addTime takes the time of a fact into Earliest and Latest.
func (c *RuleCounts) addTime(at events.Micros) {
	if at == timeless {
		return
	}
	if c.Earliest == 0 || at < c.Earliest {
		c.Earliest = at
	}
	c.Latest = max(c.Latest, at)
}

// KeyCounts counts the keys that a scan has returned.
type KeyCounts struct {
	// Scanned is the number of keys that the scan has returned. Unmatched is the number of those
	// that no rule matches. Vanished is the number of those that did not exist any more when they
	// were to be read.
	Scanned   uint64       `json:"scanned"`
	Unmatched uint64       `json:"unmatched"`
	Vanished  uint64       `json:"vanished"`
	Rules     []RuleCounts `json:"rules"`
}

// newKeyCounts returns counts of zero for the rules of a mapping.
func newKeyCounts(m *Mapping) KeyCounts {
	var c KeyCounts
	for _, r := range m.Rules {
		c.Rules = append(c.Rules, RuleCounts{Rule: r.String()})
	}
	return c
}

// progress returns the progress of reading the keys of a server that has total keys.
func (c *KeyCounts) progress(total int64) importer.Progress {
	return importer.Progress{
		PhaseProgress: replay.PhaseProgress{Phase: replay.Reading, Unit: "keys", Done: c.Scanned, Total: uint64(total)},
		Elements:      c.elements(),
	}
}

// elements returns the number of elements of all rules.
func (c *KeyCounts) elements() (n uint64) {
	for i := range c.Rules {
		n += c.Rules[i].Elements
	}
	return n
}

// keyReader reads the keys that a mapping matches, and turns their elements into facts.
type keyReader struct {
	keyspace keyspace
	mapping  *Mapping
	// start is the start of the import. Times may not be much later.
	start  events.Micros
	counts *KeyCounts
	// fact is called with each fact, and reject with each reject.
	fact   func(*fact) error
	reject func(*reject) error
}

// matchedKey is a key, the rule that reads it, and the texts that the pattern of the rule captures
// from the key.
type matchedKey struct {
	key      string
	rule     *Rule
	captured captured
}

// readAll reads all keys from the beginning of the scan. It calls observe after each step.
func (r *keyReader) readAll(ctx context.Context, observe func()) error {
	cursor := uint64(0)
	for {
		var err error
		cursor, err = r.readStep(ctx, cursor)
		if err != nil {
			return err
		}
		observe()
		if cursor == 0 {
			return nil
		}
	}
}

// readStep reads all elements of the keys that one step of the scan returns. It returns the next
// cursor, which is 0 after the last step.
func (r *keyReader) readStep(ctx context.Context, cursor uint64) (next uint64, err error) {
	keys, next, err := r.keyspace.scan(ctx, cursor, r.mapping.scanPattern())
	if err != nil {
		return 0, err
	}

	// Find the keys that match a rule.
	r.counts.Scanned += uint64(len(keys))
	var found []matchedKey
	var names []string
	for _, key := range keys {
		k := matchedKey{key: key}
		k.rule = r.mapping.findRule(key, &k.captured)
		if k.rule == nil {
			r.counts.Unmatched++
			continue
		}
		found = append(found, k)
		names = append(names, key)
	}
	types, err := r.keyspace.types(ctx, names)
	if err != nil {
		return 0, err
	}

	// Of these, find the keys that have the structure of a rule.
	readable := found[:0] // in place: the loop never writes what it has yet to read
	for i, k := range found {
		if types[i] == "none" {
			r.counts.Vanished++
			continue
		}
		fits := r.mapping.findRuleFor(&k, structure(types[i]))
		r.counts.Rules[k.rule.number-1].Keys++
		if fits {
			readable = append(readable, k)
		} else if err := r.rejectKey(&k, types[i]); err != nil {
			return 0, err
		}
	}

	for len(readable) > 0 {
		n := min(len(readable), keysPerRoundTrip)
		if err := r.readKeys(ctx, readable[:n]); err != nil {
			return 0, err
		}
		readable = readable[n:]
	}
	return next, nil
}

// rejectKey rejects a whole key because its structure is not the one that the rule reads. actual
// describes its structure.
func (r *keyReader) rejectKey(k *matchedKey, actual string) error {
	r.counts.Rules[k.rule.number-1].Rejected++
	return r.reject(&reject{
		rule: k.rule.number, key: k.key,
		reason: fmt.Sprintf("the key is a %s: the rule reads a %s", actual, k.rule.structure),
	})
}

// readKeys reads keys. It reads the first pages of all keys together, and further pages key by key,
// so that memory is bounded.
func (r *keyReader) readKeys(ctx context.Context, keys []matchedKey) error {
	requests := make([]pageRequest, len(keys))
	for i := range keys {
		requests[i] = pageRequest{key: keys[i].key, structure: keys[i].rule.structure}
	}
	first, err := r.keyspace.readPages(ctx, requests)
	if err != nil {
		return err
	}

	for i := range keys {
		k := &keys[i]
		p := first[i]
		for {
			// The type of the key has changed since it was asked for. What was read of it stays.
			if p.err != nil {
				if err := r.rejectKey(k, "something else by now"); err != nil {
					return err
				}
				break
			}
			if err := r.translateElements(k, p.elements); err != nil {
				return err
			}
			if p.next == 0 {
				break
			}
			next := pageRequest{key: k.key, structure: k.rule.structure, cursor: p.next}
			pages, err := r.keyspace.readPages(ctx, []pageRequest{next})
			if err != nil {
				return err
			}
			p = pages[0]
		}
	}
	return nil
}

// errPairs means that a page has an odd number of elements, although they come in pairs.
var errPairs = errors.New("redis: a page has a member without score, or a field without value")

// translateElements turns the elements of a page into facts and rejects.
func (r *keyReader) translateElements(k *matchedKey, elements []string) error {
	// Members with scores, and fields with values, come in pairs.
	step := 1
	if k.rule.structure == sortedSet || k.rule.structure == hash {
		step = 2
	}
	if len(elements)%step != 0 {
		return errPairs
	}
	counts := &r.counts.Rules[k.rule.number-1]
	for ; len(elements) > 0; elements = elements[step:] {
		counts.Elements++
		second := ""
		if step == 2 {
			second = elements[1]
		}

		f, err := k.rule.factOfElement(k.captured, elements[0], second, r.start)
		if err != nil {
			counts.Rejected++
			element := elements[0]
			if k.rule.structure == hash {
				element += "=" + second
			}
			err = r.reject(&reject{rule: k.rule.number, key: k.key, element: element, reason: err.Error()})
		} else {
			counts.Facts++
			counts.addTime(f.at)
			err = r.fact(&f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// factOfElement returns the fact of an element. texts are those that were captured from the key.
// first and second are a member and its score, or a field and its value; otherwise first is the
// member or element, and second is empty.
func (r *Rule) factOfElement(texts captured, first, second string, start events.Micros) (fact, error) {
	if r.first != nil && !r.first.match(first, &texts) {
		return fact{}, fmt.Errorf("it does not match %s", r.first.text)
	}
	if r.second != nil && !r.second.match(second, &texts) {
		return fact{}, fmt.Errorf("its value %q does not match %s", second[:min(len(second), 100)], r.second.text)
	}
	score := ""
	if r.structure == sortedSet {
		score = second
	}
	return r.factOf(&texts, score, start)
}
