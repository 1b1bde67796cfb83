package overlay

// PrefixLen is the length in bytes of the shard (2) and the tag (1) with which every key begins.
const PrefixLen = 3

// PrefixEnd returns the first key after all keys that begin with prefix, or nil if there is none.
func PrefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
