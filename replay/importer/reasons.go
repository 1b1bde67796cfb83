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

// ReasonCount counts the records that were rejected for the same reason. Reason and FirstExcerpt
// have no control characters, so they are safe to print on a terminal.
type ReasonCount struct {
	// Reason is the message with "…" instead of each quoted text, or [otherReasons].
	Reason string `json:"reason"`
	// Count is the number of records.
	Count uint64 `json:"count"`
	// FirstRecord is the lowest of their record numbers, which begin with 1. It is 0 if the input
	// does not number its records: Redis lists keys in no order.
	FirstRecord uint64 `json:"first_row,omitempty"`
	// FirstExcerpt is the beginning of the record FirstRecord, or of the record that was added
	// first if there are no numbers.
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

// ReasonCounts has an element for each of the first [maxReasons] different reasons that were added,
// in that order. Records with a reason that came later are counted together, in a last element.
type ReasonCounts []ReasonCount

const (
	// maxReasons is how many different reasons are counted apart.
	maxReasons = 20
	// otherReasons stands in the last element instead of a reason.
	otherReasons = "other reasons"
	// excerptBytes is the most bytes of a record that an excerpt shows. Escapes and "…" may make
	// the excerpt itself longer.
	excerptBytes = 120
)

// quotedText matches a text in double quotes. Messages quote the values of a record, which differ
// from record to record.
var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Add counts a record that was rejected with a message. Messages that differ only in quoted texts
// and white space are the same reason. number is the number of the record, which begins with 1; it
// must be 0 for all records of an input without record numbers. record is the text of the record.
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
	// Numbers do not always rise. The importer sends records to the service in batches. It adds the
	// records that it rejects itself while it fills a batch, and only later the earlier records of
	// the batch that the service rejects.
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

// excerpt returns the first excerptBytes bytes of a record, with escaped control characters and
// with U+FFFD instead of bytes that are not UTF-8. The result ends with "…" if the record is
// longer.
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

// MaxRejects is the limit of the records that an import may reject: a number, or a percentage of
// all records. The zero value allows none. An import that accepts no record fails whatever the
// limit is, because its input probably has another format.
type MaxRejects struct {
	// number is the limit if percent is nil.
	number uint64
	// percent is from 0 to 100. It is exact, because in floating-point arithmetic 0.57% of 10,000
	// records are a little less than 57, which would be rounded down to 56.
	percent *big.Rat
}

// errMaxRejectsSyntax has no subject, because the parser of the command line adds the flag's name.
var errMaxRejectsSyntax = errors.New("must be a number such as 100, or a percentage from 0% to 100% such as 0.5%")

// decimalNumber matches a decimal number without a sign and without an exponent. Without this
// check, [big.Rat.SetString] would also accept the fraction 1/3, and 1e999999999, which takes very
// much memory.
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

// allowed returns how many of total records may be rejected. A percentage is rounded down.
func (m *MaxRejects) allowed(total uint64) uint64 {
	if m.percent == nil {
		return m.number
	}
	limit := new(big.Rat).SetUint64(total)
	limit.Mul(limit, m.percent)
	limit.Mul(limit, big.NewRat(1, 100))
	return new(big.Int).Quo(limit.Num(), limit.Denom()).Uint64()
}

// Check returns an error if no record was accepted, or if more of total records were rejected than
// the limit allows. anyAccepted is a parameter of its own, because a record may be skipped, which
// is neither.
func (m *MaxRejects) Check(rejected, total uint64, anyAccepted bool) error {
	if !anyAccepted {
		return fmt.Errorf("no record was accepted: %d of %d were rejected", rejected, total)
	}
	if allowed := m.allowed(total); rejected > allowed {
		return fmt.Errorf("%d of %d records were rejected, and --max-rejects allows only %d", rejected, total, allowed)
	}
	return nil
}
