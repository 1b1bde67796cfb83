// Package recordfile keeps any number of records sorted on disk, in bounded memory. A [Sorter] sorts records, a [Writer] writes a file of
// sorted records, a [Reader] reads one, and [Merge] reads several as one.
package recordfile

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events/atomicfile"
)

// The format of a file of records. They are sorted bytewise, and no two are equal.
//
//	"skein records 1\n"
//	of each record   number of bytes shared with the one before, number of bytes that follow (uvarints), these bytes
//	the end          0 0, the number of records (uvarint), xxh3-64 of everything before (8 bytes, big endian)
const magicLine = "skein records 1\n"

// maxRecordBytes is the longest record: a reject of a long key and a long element.
const maxRecordBytes = 16 << 10

// ErrDamaged is returned for a damaged file in the state directory of an import.
var ErrDamaged = errors.New("a file of the import's state is damaged; --restart begins a new import")

// Writer writes a file of records. The file gets its name when it is complete and on disk.
type Writer struct {
	file *atomicfile.File
	w    *bufio.Writer
	hash *xxh3.Hasher
	last []byte
	// Count is the number of records.
	Count uint64
	buf   []byte
}

// Create begins a file of records.
func Create(path string) (*Writer, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: f, hash: xxh3.New()}
	w.w = bufio.NewWriterSize(io.MultiWriter(f, w.hash), 256<<10)
	_, err = w.w.WriteString(magicLine)
	return w, err
}

// Add appends a record, which must not be less than the last. A record that is equal to it is dropped.
func (w *Writer) Add(record []byte) error {
	if w.Count > 0 && bytes.Equal(record, w.last) {
		return nil
	}
	shared := 0
	for shared < min(len(record), len(w.last)) && record[shared] == w.last[shared] {
		shared++
	}
	w.buf = binary.AppendUvarint(w.buf[:0], uint64(shared))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(record)-shared))
	w.buf = append(w.buf, record[shared:]...)
	w.last = append(w.last[:shared], record[shared:]...)
	w.Count++
	_, err := w.w.Write(w.buf)
	return err
}

// Close syncs the file, then renames it to its name. It returns the checksum of the file.
func (w *Writer) Close() (sum uint64, err error) {
	w.buf = binary.AppendUvarint(append(w.buf[:0], 0, 0), w.Count)
	_, err = w.w.Write(w.buf)
	if err == nil {
		err = w.w.Flush()
	}
	sum = w.hash.Sum64()
	if err == nil {
		_, err = w.file.Write(binary.BigEndian.AppendUint64(nil, sum))
	}
	if err != nil {
		return 0, errors.Join(err, w.file.Close())
	}
	return sum, w.file.Commit()
}

// Discard drops an incomplete file.
func (w *Writer) Discard() { _ = w.file.Close() }

// Records are sorted records, from a file or merged from several.
type Records interface {
	// Next returns the next record, valid until the next call, or [io.EOF] after the last.
	Next() ([]byte, error)
	io.Closer
}

// Reader reads a file of records.
type Reader struct {
	path   string
	file   *os.File
	r      *bufio.Reader
	hash   *xxh3.Hasher
	record []byte
	count  uint64
	ended  bool
}

// Open opens a file of records.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, file: f, r: bufio.NewReaderSize(f, 64<<10), hash: xxh3.New()}
	magic := make([]byte, len(magicLine))
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != magicLine {
		_ = f.Close() // it was only read
		return nil, fmt.Errorf("%w: %s does not begin with %q", ErrDamaged, path, magicLine)
	}
	_, _ = r.hash.Write(magic) // a hash takes everything
	return r, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// ReadByte reads a byte of a number.
func (r *Reader) ReadByte() (byte, error) {
	c, err := r.r.ReadByte()
	if err == nil {
		_, _ = r.hash.Write([]byte{c}) // a hash takes everything
	}
	return c, err
}

func (r *Reader) damaged(err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s", ErrDamaged, r.path)
	}
	return fmt.Errorf("%w: %s: %w", ErrDamaged, r.path, err)
}

// Next implements [Records].
func (r *Reader) Next() ([]byte, error) {
	if r.ended {
		return nil, io.EOF
	}
	shared, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, r.damaged(noEOF(err))
	}
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, r.damaged(noEOF(err))
	}
	if shared == 0 && n == 0 {
		return nil, r.end()
	}
	if shared > uint64(len(r.record)) || n > maxRecordBytes || shared+n > maxRecordBytes {
		return nil, r.damaged(nil)
	}
	r.record = slices.Grow(r.record[:shared], int(n))[:shared+n]
	if _, err := io.ReadFull(r.r, r.record[shared:]); err != nil {
		return nil, r.damaged(noEOF(err))
	}
	_, _ = r.hash.Write(r.record[shared:])
	r.count++
	return r.record, nil
}

// end checks the number of records and the checksum after the last record.
func (r *Reader) end() error {
	count, err := binary.ReadUvarint(r)
	if err != nil || count != r.count {
		return r.damaged(noEOF(err))
	}
	var sum [8]byte
	if _, err := io.ReadFull(r.r, sum[:]); err != nil {
		return r.damaged(noEOF(err))
	}
	if binary.BigEndian.Uint64(sum[:]) != r.hash.Sum64() {
		return r.damaged(errors.New("its checksum is wrong"))
	}
	r.ended = true
	return io.EOF
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Merged merges several sources of sorted records. Of equal records it returns one.
type Merged struct {
	heap readerHeap
	last []byte
	any  bool
}

type readerHead struct {
	from   Records
	record []byte
}

type readerHeap []readerHead

func (h readerHeap) Len() int           { return len(h) }
func (h readerHeap) Less(i, j int) bool { return bytes.Compare(h[i].record, h[j].record) < 0 }
func (h readerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *readerHeap) Push(x any) { *h = append(*h, x.(readerHead)) } //nolint:forcetypeassert // only Merge pushes

// Pop is part of heap.Interface.
func (h *readerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// Merge opens some files as one.
func Merge(paths []string) (_ *Merged, err error) {
	m := &Merged{}
	defer func() {
		if err != nil {
			_ = m.Close()
		}
	}()
	for _, path := range paths {
		r, err := Open(path)
		if err != nil {
			return nil, err
		}
		first, err := r.Next()
		if err != nil {
			_ = r.Close() // it was only read
			if errors.Is(err, io.EOF) {
				continue
			}
			return nil, err
		}
		heap.Push(&m.heap, readerHead{r, first})
	}
	return m, nil
}

// Next implements [Records].
func (m *Merged) Next() ([]byte, error) {
	for len(m.heap) > 0 {
		top := &m.heap[0]
		repeat := m.any && bytes.Equal(top.record, m.last)
		if !repeat {
			m.last, m.any = append(m.last[:0], top.record...), true
		}
		next, err := top.from.Next()
		switch {
		case err == nil:
			top.record = next
			heap.Fix(&m.heap, 0)
		case errors.Is(err, io.EOF):
			_ = top.from.Close() // it was only read
			heap.Pop(&m.heap)
		default:
			return nil, err
		}
		if !repeat {
			return m.last, nil
		}
	}
	return nil, io.EOF
}

// Close closes all files.
func (m *Merged) Close() error {
	for _, h := range m.heap {
		_ = h.from.Close() // it was only read
	}
	m.heap = nil
	return nil
}

// Bounds of a Sorter.
const (
	sortBytes   = 64 << 20
	sortRecords = 1 << 20
	// sortFiles is the number of files that are Merged at a time.
	sortFiles = 64
)

// Sorter sorts any number of records in bounded memory. It collects records until they fill the memory, writes them to a sorted file, and
// merges the files at the end.
type Sorter struct {
	// Dir is the directory of the sorted files, Files are their names, and Number is the number of the last one. The owner keeps Files
	// and Number to continue later, and removes files that Files no longer names.
	Dir    string
	Files  []string
	Number int
	// MaxRecords is the most records that are sorted in memory; 0 means the default.
	MaxRecords int

	arena []byte
	ends  []int
}

// Add adds a record, in any order.
func (s *Sorter) Add(record []byte) error {
	s.arena = append(s.arena, record...)
	s.ends = append(s.ends, len(s.arena))
	if s.full() {
		return s.Flush()
	}
	return nil
}

func (s *Sorter) full() bool { return len(s.arena) >= sortBytes || len(s.ends) >= s.bound() }

// HalfFull reports whether the records in memory are more than half of those that fit.
func (s *Sorter) HalfFull() bool { return len(s.ends) > s.bound()/2 }

func (s *Sorter) bound() int {
	if s.MaxRecords > 0 {
		return s.MaxRecords
	}
	return sortRecords
}

// Flush writes the collected records to a new file.
func (s *Sorter) Flush() error {
	if len(s.ends) == 0 {
		return nil
	}
	list := make([][]byte, len(s.ends))
	begin := 0
	for i, end := range s.ends {
		list[i], begin = s.arena[begin:end], end
	}
	slices.SortFunc(list, bytes.Compare)
	name, w, err := s.create()
	if err != nil {
		return err
	}
	for _, record := range list {
		if err := w.Add(record); err != nil {
			w.Discard()
			return err
		}
	}
	if _, err := w.Close(); err != nil {
		return err
	}
	s.Files, s.arena, s.ends = append(s.Files, name), s.arena[:0], s.ends[:0]
	return s.compact()
}

// create begins a new file.
func (s *Sorter) create() (string, *Writer, error) {
	s.Number++
	name := fmt.Sprintf("sorted-%06d", s.Number)
	w, err := Create(filepath.Join(s.Dir, name))
	return name, w, err
}

// compact merges all files into one when there are too many. The old files stay until the owner removes them, because the saved state may
// still name them.
func (s *Sorter) compact() error {
	if len(s.Files) < sortFiles {
		return nil
	}
	m, err := s.Merge()
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // it was only read
	name, w, err := s.create()
	if err != nil {
		return err
	}
	if err := WriteAll(w, m); err != nil {
		return err
	}
	s.Files = []string{name}
	return nil
}

// Merge returns all flushed records, sorted.
func (s *Sorter) Merge() (*Merged, error) {
	paths := make([]string, len(s.Files))
	for i, name := range s.Files {
		paths[i] = filepath.Join(s.Dir, name)
	}
	return Merge(paths)
}

// WriteAll writes records to a file, and closes it.
func WriteAll(w *Writer, from Records) error {
	for {
		record, err := from.Next()
		if errors.Is(err, io.EOF) {
			_, err = w.Close()
			return err
		}
		if err == nil {
			err = w.Add(record)
		}
		if err != nil {
			w.Discard()
			return err
		}
	}
}
