package bucket

import (
	"fmt"
	"strings"
)

const maxName = 512

// checkName refuses what is not the name of an object.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%w: %q has %d bytes", ErrName, name[:min(len(name), maxName)], len(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if !validPart(part) {
			return fmt.Errorf("%w: %q", ErrName, name)
		}
	}
	return nil
}

// validPart reports whether a part of a name is one.
func validPart(part string) bool {
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
