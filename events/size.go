package events

import "fmt"

// FormatSize formats a number of bytes for people, such as "768 KiB". The result is exact, or
// rounded down to at least two digits.
func FormatSize(bytes uint64) string {
	for _, unit := range [...]struct {
		name  string
		shift int
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if n := bytes >> unit.shift; n >= 10 || n > 0 && n<<unit.shift == bytes {
			return fmt.Sprintf("%d %s", n, unit.name)
		}
	}
	return fmt.Sprintf("%d B", bytes)
}
