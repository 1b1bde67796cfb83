package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/importer"
)

// RuleCounts counts the keys and facts of a rule.
type RuleCounts struct {
	// Rule names the rule.
	Rule string `json:"rule"`
	// Keys and Elements are the numbers that were read, Facts the number of valid elements, Rejected the number of others. A key that a
	// scan returns twice counts twice.
	Keys     uint64 `json:"keys"`
	Elements uint64 `json:"elements"`
	Facts    uint64 `json:"facts"`
	Rejected uint64 `json:"rejected"`
	// Earliest and Latest are the first and last time of the facts, in microseconds since 1970; 0 means there are none. They reveal a
	// wrong unit.
	Earliest events.Micros `json:"earliest"`
	Latest   events.Micros `json:"latest"`
}

func (c *RuleCounts) timed(at events.Micros) {
	if at == timeless {
		return
	}
	if c.Earliest == 0 || at < c.Earliest {
		c.Earliest = at
	}
	c.Latest = max(c.Latest, at)
}

// KeyCounts counts the keys of a scan.
type KeyCounts struct {
	// Scanned is the number of keys that the scan has returned, Unmatched the number of those that no rule matches, Vanished the number
	// of those that were gone before they were read.
	Scanned   uint64       `json:"scanned"`
	Unmatched uint64       `json:"unmatched"`
	Vanished  uint64       `json:"vanished"`
	Rules     []RuleCounts `json:"rules"`
}

func newKeyCounts(m *Mapping) KeyCounts {
	var c KeyCounts
	for _, r := range m.Rules {
		c.Rules = append(c.Rules, RuleCounts{Rule: r.String()})
	}
	return c
}

// progress returns the progress of reading the keys of a server that has so many.
func (c *KeyCounts) progress(total int64) importer.Progress {
	return importer.Progress{
		PhaseProgress: replay.PhaseProgress{Phase: replay.Reading, Unit: "keys", Done: c.Scanned, Total: uint64(total)}, Elements: c.elements(),
	}
}

func (c *KeyCounts) elements() (n uint64) {
	for i := range c.Rules {
		n += c.Rules[i].Elements
	}
	return n
}

// reading reads the keys of a mapping, and turns their elements into facts.
type reading struct {
	from    keyspace
	mapping *Mapping
	// start is the start of the import. No time may be much later.
	start  events.Micros
	counts *KeyCounts
	// fact and reject are called with each fact and each reject.
	fact   func(*fact) error
	reject func(*reject) error
}

// matchedKey is a key with the rule that reads it.
type matchedKey struct {
	key  string
	rule *Rule
	said captured
}

// step reads all elements of the keys that one step of the scan returns. It returns the next cursor, or 0 after the last step.
func (r *reading) step(ctx context.Context, cursor uint64) (next uint64, err error) {
	keys, next, err := r.from.scan(ctx, cursor, r.mapping.glob())
	if err != nil {
		return 0, err
	}
	r.counts.Scanned += uint64(len(keys))
	var found []matchedKey
	var names []string
	for _, key := range keys {
		k := matchedKey{key: key}
		if k.rule = r.mapping.rule(key, &k.said); k.rule == nil {
			r.counts.Unmatched++
			continue
		}
		found, names = append(found, k), append(names, key)
	}
	types, err := r.from.types(ctx, names)
	if err != nil {
		return 0, err
	}
	good := found[:0]
	for i, k := range found {
		if types[i] == "none" {
			r.counts.Vanished++
			continue
		}
		fits := r.mapping.ruleFor(&k, structure(types[i]))
		r.counts.Rules[k.rule.number-1].Keys++
		if fits {
			good = append(good, k)
		} else if err := r.wrongType(&k, types[i]); err != nil {
			return 0, err
		}
	}
	for len(good) > 0 {
		n := min(len(good), pipelined)
		if err := r.keys(ctx, good[:n]); err != nil {
			return 0, err
		}
		good = good[n:]
	}
	return next, nil
}

func (r *reading) wrongType(k *matchedKey, is string) error {
	r.counts.Rules[k.rule.number-1].Rejected++
	return r.reject(&reject{
		rule: k.rule.number, key: k.key,
		reason: fmt.Sprintf("the key is a %s: the rule reads a %s", is, k.rule.structure),
	})
}

// keys reads keys. It reads the first pages of all keys together, and later pages key by key, so that memory is bounded.
func (r *reading) keys(ctx context.Context, keys []matchedKey) error {
	of := make([]pageOf, len(keys))
	for i := range keys {
		of[i] = pageOf{key: keys[i].key, is: keys[i].rule.structure}
	}
	first, err := r.from.pages(ctx, of)
	if err != nil {
		return err
	}
	for i := range keys {
		k, p := &keys[i], first[i]
		for {
			if p.err != nil {
				if err := r.wrongType(k, "something else by now"); err != nil {
					return err
				}
				break
			}
			if err := r.elements(k, p.elements); err != nil {
				return err
			}
			if p.next == 0 {
				break
			}
			of := pageOf{key: k.key, is: k.rule.structure, cursor: p.next}
			pages, err := r.from.pages(ctx, []pageOf{of})
			if err != nil {
				return err
			}
			p = pages[0]
		}
	}
	return nil
}

var errPairs = errors.New("redis: a page has a member without score, or a field without value")

// elements turns the elements of a page into facts and rejects.
func (r *reading) elements(k *matchedKey, elements []string) error {
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
		f, err := k.rule.read(k.said, elements[0], second, r.start)
		if err != nil {
			counts.Rejected++
			element := elements[0]
			if k.rule.structure == hash {
				element += "=" + second
			}
			err = r.reject(&reject{rule: k.rule.number, key: k.key, element: element, reason: err.Error()})
		} else {
			counts.Facts++
			counts.timed(f.at)
			err = r.fact(&f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read returns the fact of an element. first and second are a member and its score, a field and its value, or a member or element alone.
func (r *Rule) read(said captured, first, second string, start events.Micros) (fact, error) {
	if r.first != nil && !r.first.match(first, &said) {
		return fact{}, fmt.Errorf("it does not match %s", r.first.text)
	}
	if r.second != nil && !r.second.match(second, &said) {
		return fact{}, fmt.Errorf("its value %q does not match %s", second[:min(len(second), 100)], r.second.text)
	}
	score := ""
	if r.structure == sortedSet {
		score = second
	}
	return r.factOf(&said, score, start)
}
