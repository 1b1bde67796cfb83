package importer

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/events"
)

// Reason is a reason for which records were rejected, with the number of these records.
type Reason struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
	// FirstRecord is the number of the first of these records; 0 if records have no numbers. First is the beginning of that record.
	FirstRecord uint64 `json:"first_row,omitempty"`
	First       string `json:"first"`
}

// String describes the reason to people.
func (r *Reason) String() string {
	at := ""
	if r.FirstRecord > 0 {
		at = fmt.Sprintf(" row %d", r.FirstRecord)
	}
	return fmt.Sprintf("%d rejected: %s; first%s: %s", r.Count, events.EscapeControls(r.Reason), at, r.First)
}

// Reasons are the reasons for which records were rejected, in the order in which they were met.
type Reasons []Reason

const (
	// maxReasons limits the number of reasons. The last one stands for all others.
	maxReasons   = 20
	otherReasons = "other reasons"
	// excerptBytes is how many bytes of a record are kept with its reason.
	excerptBytes = 120
)

// quotedValues matches the values of a record that a reason quotes. They are removed, so that records with the same fault have the same reason.
var quotedValues = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Add counts a rejected record.
func (rs *Reasons) Add(reason string, record uint64, line string) {
	reason = strings.Join(strings.Fields(quotedValues.ReplaceAllString(reason, "…")), " ")
	for i := range *rs {
		r := &(*rs)[i]
		if r.Reason != reason && i != maxReasons-1 {
			continue
		}
		r.Count++
		// Records that the service rejects are reported later than records that were not sent.
		if record < r.FirstRecord {
			r.FirstRecord = record
			r.First = excerpt(line)
		}
		return
	}
	if len(*rs) == maxReasons-1 {
		reason = otherReasons
	}
	*rs = append(*rs, Reason{Reason: reason, Count: 1, FirstRecord: record, First: excerpt(line)})
}

// excerpt returns the beginning of a record for people.
func excerpt(line string) string {
	if len(line) <= excerptBytes {
		return events.EscapeControls(strings.ToValidUTF8(line, "\ufffd"))
	}
	return events.EscapeControls(strings.ToValidUTF8(line[:excerptBytes], "")) + "…"
}

// MaxRejects limits how many records may be rejected: a number, or a share of all records. The zero value allows none.
type MaxRejects struct {
	number uint64
	// percent is nil if the limit is a number. It is exact, because in binary floating point 0.57% of 10,000 records would be less than 57.
	percent *big.Rat
	text    string
}

var errMaxRejects = errors.New("must be a number of rows, such as 100, or a share of them from 0% to 100%, such as 0.5%")

// decimalNumber matches a number without sign and exponent. [big.Rat.SetString] would also accept fractions, and exponents that need much memory.
var decimalNumber = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)$`)

// UnmarshalText parses a number such as "100" or a share such as "0.5%".
func (m *MaxRejects) UnmarshalText(text []byte) (err error) {
	*m = MaxRejects{text: string(text)}
	digits, isShare := strings.CutSuffix(m.text, "%")
	if !isShare {
		m.number, err = strconv.ParseUint(digits, 10, 63)
		if err != nil {
			return errMaxRejects
		}
		return nil
	}

	if !decimalNumber.MatchString(digits) {
		return errMaxRejects
	}
	percent, ok := new(big.Rat).SetString(digits)
	if !ok || percent.Cmp(big.NewRat(100, 1)) > 0 {
		return errMaxRejects
	}
	m.percent = percent
	return nil
}

// allows reports whether this many of all records may be rejected.
func (m *MaxRejects) allows(rejected, all uint64) bool {
	if m.percent == nil {
		return rejected <= m.number
	}
	// rejected / all <= percent / 100, without a division by zero
	rejectedTimes100 := new(big.Rat).Mul(new(big.Rat).SetUint64(rejected), big.NewRat(100, 1))
	allowedTimes100 := new(big.Rat).Mul(m.percent, new(big.Rat).SetUint64(all))
	return rejectedTimes100.Cmp(allowedTimes100) <= 0
}

// Check returns an error if more records were rejected than allowed, or if no record was accepted.
func (m *MaxRejects) Check(rejected, taken, all uint64) error {
	switch {
	case taken == 0:
		return fmt.Errorf("nothing was taken: %d of %d rejected", rejected, all)
	case m.allows(rejected, all):
		return nil
	}
	return fmt.Errorf("%d of %d rejected (%s), and --max-rejects allows %s",
		rejected, all, Percent(rejected, all), cmp.Or(m.text, "0"))
}

// Percent returns a share for people, with two significant digits, as in 3.8% or 0.0021%, which is also the form of --max-rejects.
func Percent(part, all uint64) string {
	share := 100 * float64(part) / float64(max(all, 1))
	if share >= 10 {
		return fmt.Sprintf("%.0f%%", share)
	}
	return fmt.Sprintf("%.2g%%", share)
}
