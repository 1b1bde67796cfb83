package tally

import "github.com/skein-feed/skein/events"

// Variant is a Tally with another version, other kinds or other settings, and so with another
// fingerprint.
type Variant struct {
	*Tally

	FoldVersion  uint32
	ReadKinds    []events.Kind
	FoldSettings map[string]string
}

// Version returns FoldVersion.
func (v Variant) Version() uint32 { return v.FoldVersion }

// Kinds returns ReadKinds.
func (v Variant) Kinds() []events.Kind { return v.ReadKinds }

// Settings returns FoldSettings.
func (v Variant) Settings() map[string]string { return v.FoldSettings }
