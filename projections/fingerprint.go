package projections

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events"
)

// runtimeVersion is the version of what a store itself adds to a fold: the rows of the runtime, which
// backfills are accepted, which rejects are kept. It is part of every fingerprint.
const runtimeVersion = 1

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

// FingerprintOf returns the fingerprint of a store of all partitions that a projection would build.
func FingerprintOf(p Projection) Fingerprint { return FingerprintOfPartitions(p, nil) }

// FingerprintOfPartitions returns the fingerprint of a store of some partitions that a projection would build; nil means all.
func FingerprintOfPartitions(p Projection, held *events.Partitions) Fingerprint {
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
	if held = NilIfAll(held); held == nil {
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
	return NilIfAll(&held), nil
}

// Encode returns the fingerprint as a store has it. It gives equal bytes for equal fingerprints: the fields stand in order, the settings sorted.
func (f Fingerprint) Encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// String returns the hash of the fingerprint: 32 hexadecimal digits.
func (f Fingerprint) String() string {
	sum := sha256.Sum256(f.Encode())
	return hex.EncodeToString(sum[:16])
}

// Differences names what f, which a store was built with, has otherwise than now; empty means nothing.
func (f Fingerprint) Differences(now Fingerprint) string {
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
		add("setting "+key, settingText(f.Settings, key), settingText(now.Settings, key))
	}
	return strings.Join(diff, "; ")
}

func settingText(settings map[string]string, key string) string {
	if v, ok := settings[key]; ok {
		return fmt.Sprintf("%q", v)
	}
	return "not set"
}
