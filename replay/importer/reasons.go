package importer

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skein-feed/skein/events"
)

// ReasonCount counts the records that were rejected for the same reason. Both texts are safe to
// print on a terminal.
type ReasonCount struct {
	Reason string `json:"reason"`
	// Count is the number of records.
	Count uint64 `json:"count"`
	// FirstRecord is the lowest record number among them, from 1; 0 if the input has no record
	// numbers, as Redis.
	FirstRecord uint64 `json:"first_row,omitempty"`
	// FirstExcerpt is the beginning of the record with the number FirstRecord, or of the record
	// that was counted first if there are no numbers.
	FirstExcerpt string `json:"first"`
}

// String formats the count as one line of text.
func (c ReasonCount) String() string {
	first := "first"
	if c.FirstRecord > 0 {
		first = fmt.Sprintf("first row %d", c.FirstRecord)
	}
	return fmt.Sprintf("%d rejected: %s; %s: %s", c.Count, c.Reason, first, c.FirstExcerpt)
}

// ReasonCounts has one element per reason, in the order in which Add met the reasons. One more
// element counts the records with other reasons, if there are more than maxReasons.
type ReasonCounts []ReasonCount

const (
	maxReasons = 20
	// otherReasons is the reason in the element for other reasons.
	otherReasons = "other reasons"
	// excerptBytes limits an excerpt of a record. Escapes and "…" may make the excerpt longer.
	excerptBytes = 120
)

// quotedText matches a text in double quotes. Most messages quote the values of the record.
var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Add counts a rejected record. The message says why it was rejected; the reason is the message
// with "…" instead of each quoted text, so that records with the same fault but other values are
// counted together. number is the number of the record, from 1, or always 0 if the input has no
// record numbers. record is its text.
func (cs *ReasonCounts) Add(message string, number uint64, record string) {
	reason := strings.Join(strings.Fields(quotedText.ReplaceAllString(message, "…")), " ")
	reason = events.EscapeControls(reason)

	c := cs.find(reason)
	if c == nil && len(*cs) >= maxReasons {
		reason = otherReasons
		c = cs.find(reason)
	}
	if c == nil {
		*cs = append(*cs, ReasonCount{Reason: reason, Count: 1, FirstRecord: number, FirstExcerpt: excerpt(record)})
		return
	}

	c.Count++
	// Numbers do not always rise: the importer adds a record that it does not send before the
	// records of the same call that the service rejects.
	if number < c.FirstRecord {
		c.FirstRecord = number
		c.FirstExcerpt = excerpt(record)
	}
}

// find returns the element with the reason, or nil.
func (cs *ReasonCounts) find(reason string) *ReasonCount {
	for i := range *cs {
		if (*cs)[i].Reason == reason {
			return &(*cs)[i]
		}
	}
	return nil
}

// excerpt returns the beginning of a record, with escaped control characters and with U+FFFD for
// bytes that are not UTF-8. It appends "…" to the beginning of a longer record.
func excerpt(record string) string {
	ellipsis := ""
	if len(record) > excerptBytes {
		ellipsis = "…"
		// Do not cut within a character.
		end := excerptBytes
		for end > excerptBytes-utf8.UTFMax && !utf8.RuneStart(record[end]) {
			end--
		}
		record = record[:end]
	}
	return events.EscapeControls(strings.ToValidUTF8(record, "\ufffd")) + ellipsis
}

// MaxRejects limits how many records may be rejected, either by a number or by a percentage of all
// records. The zero value allows none.
type MaxRejects struct {
	number uint64
	// percent is from 0 to 100; nil means that number is the limit. A binary floating-point number
	// would be too small for 0.57% of 10,000 records, which are 57.
	percent *big.Rat
}

// errMaxRejectsSyntax has no subject, because the command line puts the name of the flag before it.
var errMaxRejectsSyntax = errors.New("must be a number such as 100, or a percentage from 0% to 100% such as 0.5%")

// decimalNumber matches a decimal number without a sign and without an exponent.
// [big.Rat.SetString] would also accept 1/3, and 1e999999999, which needs much memory.
var decimalNumber = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)$`)

// UnmarshalText parses a number such as "100" or a percentage such as "0.5%".
func (m *MaxRejects) UnmarshalText(text []byte) error {
	digits, isPercentage := strings.CutSuffix(string(text), "%")
	if !isPercentage {
		number, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return errMaxRejectsSyntax
		}
		*m = MaxRejects{number: number}
		return nil
	}

	if !decimalNumber.MatchString(digits) {
		return errMaxRejectsSyntax
	}
	percent, ok := new(big.Rat).SetString(digits)
	if !ok || percent.Cmp(big.NewRat(100, 1)) > 0 {
		return errMaxRejectsSyntax
	}
	*m = MaxRejects{percent: percent}
	return nil
}

// allowed returns how many of the records may be rejected, where records is the number of all
// records.
func (m *MaxRejects) allowed(records uint64) uint64 {
	if m.percent == nil {
		return m.number
	}
	limit := new(big.Rat).SetUint64(records)
	limit.Mul(limit, m.percent)
	limit.Mul(limit, big.NewRat(1, 100))
	return new(big.Int).Quo(limit.Num(), limit.Denom()).Uint64() // rounded down
}

// Check returns an error if no record was accepted, whatever the limit is, or if more records were
// rejected than the limit allows. records is the number of all records, those that were rejected
// included.
func (m *MaxRejects) Check(rejected, records uint64, anyAccepted bool) error {
	if !anyAccepted {
		return fmt.Errorf("no record was accepted: %d of %d were rejected", rejected, records)
	}
	if allowed := m.allowed(records); rejected > allowed {
		return fmt.Errorf("%d of %d records were rejected, and --max-rejects allows only %d", rejected, records, allowed)
	}
	return nil
}
