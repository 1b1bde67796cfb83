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

// runtimeVersion is the version of what the store itself adds to every fold: its own rows, and the
// rules by which it accepts backfills and keeps rejects. It is part of every fingerprint.
const runtimeVersion = 1

// Fingerprint describes everything besides the log that the rows of a generation depend on (I4).
type Fingerprint struct {
	Name    string `json:"name"`
	Version uint32 `json:"version"`
	// Runtime is the runtimeVersion of the program that built the store.
	Runtime uint32 `json:"runtime"`
	// Kinds are the names of the kinds that the projection reads, in the order of their numbers.
	Kinds []string `json:"kinds"`
	// Settings are the settings of a [SettingsProvider] projection.
	Settings map[string]string `json:"settings,omitempty"`
	// Partitions is the set that the store holds, in the form of [events.Partitions.String]. Empty
	// means all partitions.
	Partitions string `json:"partitions,omitempty"`
}

// FingerprintOf returns the fingerprint that a new store of all partitions of the projection has.
func FingerprintOf(p Projection) Fingerprint { return FingerprintOfPartitions(p, nil) }

// FingerprintOfPartitions returns the fingerprint that a new store of some partitions of the
// projection has. nil means all.
func FingerprintOfPartitions(p Projection, held *events.Partitions) Fingerprint {
	f := Fingerprint{Name: p.Name(), Version: p.Version(), Runtime: runtimeVersion, Partitions: FormatHeld(held)}
	kinds := slices.Clone(p.Kinds())
	slices.Sort(kinds)
	for _, k := range slices.Compact(kinds) {
		f.Kinds = append(f.Kinds, k.String())
	}
	if c, ok := p.(SettingsProvider); ok {
		f.Settings = c.Settings()
	}
	return f
}

// FormatHeld returns the text form of a set of partitions in a fingerprint. It is empty for all
// partitions, also in the form of nil.
func FormatHeld(held *events.Partitions) string {
	if held = NilIfAll(held); held == nil {
		return ""
	}
	return held.String()
}

// ParseHeld parses the text form of [FormatHeld]. It returns nil for all partitions, and
// [ErrCorrupt] for text that is malformed.
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

// Encode returns the fingerprint as JSON, which is its form in the row of a store. Equal
// fingerprints have equal bytes, because the order of fields is fixed and settings are sorted by
// name.
func (f Fingerprint) Encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // unreachable: strings and numbers can always be marshaled
	}
	return b
}

// String returns the hash of the fingerprint as 32 hexadecimal digits.
func (f Fingerprint) String() string {
	sum := sha256.Sum256(f.Encode())
	return hex.EncodeToString(sum[:16])
}

// Differences lists the differences between f, the fingerprint of a store, and now, the fingerprint
// that the program gives a new store. It returns an empty string if they are equal.
func (f Fingerprint) Differences(now Fingerprint) string {
	var differences []string
	compare := func(what, before, after string) {
		if before != after {
			differences = append(differences, fmt.Sprintf("%s was %s, is %s", what, before, after))
		}
	}
	compare("name", f.Name, now.Name)
	compare("version", fmt.Sprint(f.Version), fmt.Sprint(now.Version))
	compare("runtime version", fmt.Sprint(f.Runtime), fmt.Sprint(now.Runtime))
	compare("the set of partitions", cmp.Or(f.Partitions, "all"), cmp.Or(now.Partitions, "all"))
	compare("the list of kinds", strings.Join(f.Kinds, " "), strings.Join(now.Kinds, " "))

	all := maps.Clone(f.Settings)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, now.Settings)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		compare("setting "+key, settingText(f.Settings, key), settingText(now.Settings, key))
	}
	return strings.Join(differences, "; ")
}

// settingText returns the quoted value of a setting, or "not set".
func settingText(settings map[string]string, key string) string {
	if v, ok := settings[key]; ok {
		return fmt.Sprintf("%q", v)
	}
	return "not set"
}
