package flags

import (
	"fmt"
	"strconv"
	"strings"
)

// ByteSize is a size on the command line: 4096, 64KiB, 256MiB, 2GiB.
type ByteSize int64

var byteUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// UnmarshalText is part of encoding.TextUnmarshaler.
func (b *ByteSize) UnmarshalText(text []byte) error {
	for _, unit := range byteUnits {
		number, ok := strings.CutSuffix(string(text), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/unit.bytes {
			break
		}
		*b = ByteSize(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size: write a number of bytes, or a number with KiB, MiB or GiB", text)
}

// String returns the size in the form that UnmarshalText reads.
func (b ByteSize) String() string {
	for _, unit := range byteUnits {
		if b != 0 && int64(b)%unit.bytes == 0 && unit.name != "B" {
			return strconv.FormatInt(int64(b)/unit.bytes, 10) + unit.name
		}
	}
	return "0"
}
