package bucket

import (
	"fmt"
	"strings"
)

const maxNameBytes = 512

// checkName refuses what is not the name of an object.
func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("%w: %q has %d bytes", ErrName, name[:min(len(name), maxNameBytes)], len(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if !isValidPart(part) {
			return fmt.Errorf("%w: %q", ErrName, name)
		}
	}
	return nil
}

// validPart reports whether a part of a name is one.
func isValidPart(part string) bool {
	for i := range len(part) {
		c := part[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return part != ""
}
