package projections

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
)

// runtimeVersion is the version of what this package itself adds to a fold: the rows of the runtime, which
// backfills are accepted, which rejects are kept. It is part of every fingerprint.
const runtimeVersion = 1

// formatVersion is the version of the encoding of the row that tells the fingerprint, and so of all else.
const formatVersion = 1

// Fingerprint is all that the rows of a generation depend on besides the log (I4).
type Fingerprint struct {
	Name    string `json:"name"`
	Version uint32 `json:"version"`
	// Runtime is the version of the runtime's own part of the fold.
	Runtime uint32 `json:"runtime"`
	// Kinds are the names of the kinds that the projection reads, in the order of their numbers.
	Kinds []string `json:"kinds"`
	// Settings are those of a [Configured] projection.
	Settings map[string]string `json:"settings,omitempty"`
	// Partitions are those that the store holds, as [events.Partitions.String] has them; empty means all.
	Partitions string `json:"partitions,omitempty"`
}

func fingerprintOf(p Projection, held *events.Partitions) Fingerprint {
	f := Fingerprint{Name: p.Name(), Version: p.Version(), Runtime: runtimeVersion, Partitions: HeldText(held)}
	kinds := slices.Clone(p.Kinds())
	slices.Sort(kinds)
	for _, k := range slices.Compact(kinds) {
		f.Kinds = append(f.Kinds, k.String())
	}
	if c, ok := p.(Configured); ok {
		f.Settings = c.Settings()
	}
	return f
}

// HeldText returns a set of partitions as a fingerprint has it; nil means all partitions.
func HeldText(held *events.Partitions) string {
	if held = partsOf(held); held == nil {
		return ""
	}
	return held.String()
}

// ParseHeld parses the set of partitions of a fingerprint; nil means all partitions.
func ParseHeld(text string) (*events.Partitions, error) {
	if text == "" {
		return nil, nil
	}
	held, err := events.ParsePartitions(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return partsOf(&held), nil
}

// encode gives equal bytes for equal fingerprints: the fields stand in order, the settings sorted.
func (f Fingerprint) encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// String returns the hash of the fingerprint: 32 hexadecimal digits.
func (f Fingerprint) String() string {
	sum := sha256.Sum256(f.encode())
	return hex.EncodeToString(sum[:16])
}

// differences names what f, which the store was built with, has otherwise than now.
func (f Fingerprint) differences(now Fingerprint) string {
	var diff []string
	add := func(what, was, is string) {
		if was != is {
			diff = append(diff, fmt.Sprintf("%s was %s, is %s", what, was, is))
		}
	}
	add("name", f.Name, now.Name)
	add("version", fmt.Sprint(f.Version), fmt.Sprint(now.Version))
	add("runtime version", fmt.Sprint(f.Runtime), fmt.Sprint(now.Runtime))
	add("the set of partitions", cmp.Or(f.Partitions, "all"), cmp.Or(now.Partitions, "all"))
	add("the list of kinds", strings.Join(f.Kinds, " "), strings.Join(now.Kinds, " "))
	all := maps.Clone(f.Settings)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, now.Settings)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		add("setting "+key, setting(f.Settings, key), setting(now.Settings, key))
	}
	return strings.Join(diff, "; ")
}

func setting(settings map[string]string, key string) string {
	if v, ok := settings[key]; ok {
		return fmt.Sprintf("%q", v)
	}
	return "not set"
}

// checkFingerprint compares the fingerprint of the store with that of the projection, or writes it to a new store.
func (s *Store) checkFingerprint() error {
	format, err := s.row(formatKey)
	if err != nil {
		return err
	}
	if format == nil {
		return s.create()
	}
	if want := binary.BigEndian.AppendUint32(nil, formatVersion); !bytes.Equal(format, want) {
		return fmt.Errorf("%w: format version %x, this program knows %x", ErrFingerprint, format, want)
	}
	row, err := s.row(fingerprintKey)
	if err != nil {
		return err
	}
	var was Fingerprint
	if err := json.Unmarshal(row, &was); err != nil {
		return fmt.Errorf("%w: fingerprint: %w", ErrCorrupt, err)
	}
	if err := s.hold(was.Partitions); err != nil {
		return err
	}
	if bytes.Equal(row, s.print.encode()) {
		return nil
	}
	if s.opts.ReadOnly {
		// Settings decide what is folded, not how rows are read.
		same := s.print
		same.Settings = was.Settings
		if c, ok := s.opts.Projection.(Compatible); ok && c.Reads(was) {
			same.Version, same.Kinds = was.Version, was.Kinds
		}
		if bytes.Equal(row, same.encode()) {
			s.outdated = was.differences(s.print)
			s.print = same
			return nil
		}
	}
	return fmt.Errorf("%w: %s; to adopt the new, have it rebuilt: skein replay rebuild %s",
		ErrFingerprint, was.differences(s.print), s.print.Name)
}

// hold has the store hold the set of its fingerprint, if it is to be opened as the one that it is.
func (s *Store) hold(text string) error {
	if s.opts.Partitioned {
		held, err := ParseHeld(text)
		if err != nil {
			return err
		}
		s.holding.parts, s.print.Partitions = held, HeldText(held)
		return nil
	}
	if s.opts.Partitions == nil && text != "" {
		return PartialError(s.dir, text)
	}
	return nil
}

// PartialError returns an [ErrPartial] about a directory whose store holds a set of partitions, as [HeldText] writes it.
func PartialError(dir, text string) error {
	held, err := ParseHeld(text)
	if err != nil {
		return err
	}
	n := 0
	if held != nil {
		n = held.Len()
	}
	return fmt.Errorf("%w: %s has %d of %d; start the process as that node of its cluster, or remove the directory to have all built",
		ErrPartial, dir, n, events.NumPartitions)
}

// create writes the first rows. They are flushed before or with all others, so a store with rows always has them.
func (s *Store) create() error {
	if s.opts.ReadOnly {
		return ErrNoStore
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	rows := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if rows {
		return fmt.Errorf("%w: rows, but no fingerprint", ErrCorrupt)
	}
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }()
	_ = b.Set(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion), nil)
	_ = b.Set(fingerprintKey, s.print.encode(), nil)
	s.flush.dirty = true
	return s.db.Apply(b, pebble.NoSync)
}
