// Package keylist has a list of keys in one block of memory. A fold that must read keys before it
// may write uses it, so that it does not allocate memory for each key.
package keylist

// List is a list of keys. The zero List is empty.
type List struct {
	data []byte
	// ends[i] is the end of the i-th key in data. The key begins where the one before it ends.
	ends []int
}

// Add adds a key that consists of the given parts.
func (l *List) Add(parts ...[]byte) {
	for _, part := range parts {
		l.data = append(l.data, part...)
	}
	l.ends = append(l.ends, len(l.data))
}

// Len returns the number of keys.
func (l *List) Len() int { return len(l.ends) }

// At returns the i-th key. It is valid until the list is reset.
func (l *List) At(i int) []byte {
	start := 0
	if i > 0 {
		start = l.ends[i-1]
	}
	// The capacity ends with the key, so that appending to it does not overwrite the next key.
	return l.data[start:l.ends[i]:l.ends[i]]
}

// Reset removes all keys and keeps the memory.
func (l *List) Reset() {
	l.data = l.data[:0]
	l.ends = l.ends[:0]
}
