package redis

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
const recordsMagic = "skein records 1\n"

// maxRecord is the longest record: a reject of a long key and a long element.
const maxRecord = 4 * keptBytes

// ErrSpool is returned for a damaged file in the state directory of an import.
var ErrSpool = errors.New("a file of the import's state is damaged; --restart begins a new import")

// recordWriter writes a file of records. The file gets its name when it is complete and on disk.
type recordWriter struct {
	file  *atomicfile.File
	w     *bufio.Writer
	hash  *xxh3.Hasher
	last  []byte
	count uint64
	buf   []byte
}

func newRecordWriter(path string) (*recordWriter, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &recordWriter{file: f, hash: xxh3.New()}
	w.w = bufio.NewWriterSize(io.MultiWriter(f, w.hash), 256<<10)
	_, err = w.w.WriteString(recordsMagic)
	return w, err
}

// add appends a record, which must not be less than the last. A record that is equal to it is dropped.
func (w *recordWriter) add(record []byte) error {
	if w.count > 0 && bytes.Equal(record, w.last) {
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
	w.count++
	_, err := w.w.Write(w.buf)
	return err
}

// close syncs the file, then renames it to its name. It returns the checksum of the file.
func (w *recordWriter) close() (sum uint64, err error) {
	w.buf = binary.AppendUvarint(append(w.buf[:0], 0, 0), w.count)
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

// drop discards an incomplete file.
func (w *recordWriter) drop() { _ = w.file.Close() }

// records are sorted records, from a file or merged from several.
type records interface {
	// next returns the next record, valid until the next call, or [io.EOF] after the last.
	next() ([]byte, error)
	io.Closer
}

// recordReader reads a file of records.
type recordReader struct {
	path   string
	file   *os.File
	r      *bufio.Reader
	hash   *xxh3.Hasher
	record []byte
	count  uint64
	ended  bool
	size   int64
	read   int64
}

func openRecords(path string) (*recordReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &recordReader{path: path, file: f, r: bufio.NewReaderSize(f, 64<<10), hash: xxh3.New()}
	if info, err := f.Stat(); err == nil {
		r.size = info.Size()
	}
	magic := make([]byte, len(recordsMagic))
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != recordsMagic {
		_ = f.Close() // it was only read
		return nil, fmt.Errorf("%w: %s does not begin with %q", ErrSpool, path, recordsMagic)
	}
	_, _ = r.hash.Write(magic) // a hash takes everything
	r.read = int64(len(magic))
	return r, nil
}

// Close closes the file.
func (r *recordReader) Close() error { return r.file.Close() }

// ReadByte reads a byte of a number.
func (r *recordReader) ReadByte() (byte, error) {
	c, err := r.r.ReadByte()
	if err == nil {
		r.read++
		_, _ = r.hash.Write([]byte{c}) // a hash takes everything
	}
	return c, err
}

func (r *recordReader) damaged(err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s", ErrSpool, r.path)
	}
	return fmt.Errorf("%w: %s: %w", ErrSpool, r.path, err)
}

func (r *recordReader) next() ([]byte, error) {
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
	if shared > uint64(len(r.record)) || n > maxRecord || shared+n > maxRecord {
		return nil, r.damaged(nil)
	}
	r.record = slices.Grow(r.record[:shared], int(n))[:shared+n]
	if _, err := io.ReadFull(r.r, r.record[shared:]); err != nil {
		return nil, r.damaged(noEOF(err))
	}
	_, _ = r.hash.Write(r.record[shared:])
	r.read += int64(n)
	r.count++
	return r.record, nil
}

// end checks the number of records and the checksum after the last record.
func (r *recordReader) end() error {
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

// merged merges several sources of sorted records. Of equal records it returns one.
type merged struct {
	heap recordHeap
	last []byte
	any  bool
}

type recordHead struct {
	from   records
	record []byte
}

type recordHeap []recordHead

func (h recordHeap) Len() int           { return len(h) }
func (h recordHeap) Less(i, j int) bool { return bytes.Compare(h[i].record, h[j].record) < 0 }
func (h recordHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *recordHeap) Push(x any) { *h = append(*h, x.(recordHead)) } //nolint:forcetypeassert // only mergeFiles pushes

// Pop is part of heap.Interface.
func (h *recordHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// mergeFiles opens some files as one.
func mergeFiles(paths []string) (_ *merged, err error) {
	m := &merged{}
	defer func() {
		if err != nil {
			_ = m.Close()
		}
	}()
	for _, path := range paths {
		r, err := openRecords(path)
		if err != nil {
			return nil, err
		}
		first, err := r.next()
		if err != nil {
			_ = r.Close() // it was only read
			if errors.Is(err, io.EOF) {
				continue
			}
			return nil, err
		}
		heap.Push(&m.heap, recordHead{r, first})
	}
	return m, nil
}

func (m *merged) next() ([]byte, error) {
	for len(m.heap) > 0 {
		top := &m.heap[0]
		repeat := m.any && bytes.Equal(top.record, m.last)
		if !repeat {
			m.last, m.any = append(m.last[:0], top.record...), true
		}
		next, err := top.from.next()
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
func (m *merged) Close() error {
	for _, h := range m.heap {
		_ = h.from.Close() // it was only read
	}
	m.heap = nil
	return nil
}

// Bounds of a sorter.
const (
	sortBytes   = 64 << 20
	sortRecords = 1 << 20
	// sortFiles is the number of files that are merged at a time.
	sortFiles = 64
)

// sorter sorts any number of records in bounded memory. It collects records until they fill the memory, writes them to a sorted file, and
// merges the files at the end.
type sorter struct {
	dir   string
	arena []byte
	ends  []int
	// files are the names of the sorted files, number is the number of the next one.
	files  []string
	number int
	// maxRecords is the most records that are sorted in memory.
	maxRecords int
}

func (s *sorter) add(record []byte) error {
	s.arena = append(s.arena, record...)
	s.ends = append(s.ends, len(s.arena))
	if s.full() {
		return s.flush()
	}
	return nil
}

func (s *sorter) full() bool { return len(s.arena) >= sortBytes || len(s.ends) >= s.bound() }

func (s *sorter) bound() int {
	if s.maxRecords > 0 {
		return s.maxRecords
	}
	return sortRecords
}

// flush writes the collected records to a new file.
func (s *sorter) flush() error {
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
		if err := w.add(record); err != nil {
			w.drop()
			return err
		}
	}
	if _, err := w.close(); err != nil {
		return err
	}
	s.files, s.arena, s.ends = append(s.files, name), s.arena[:0], s.ends[:0]
	return s.compact()
}

// create begins a new file.
func (s *sorter) create() (string, *recordWriter, error) {
	s.number++
	name := fmt.Sprintf("sorted-%06d", s.number)
	w, err := newRecordWriter(filepath.Join(s.dir, name))
	return name, w, err
}

// compact merges all files into one when there are too many. The old files stay until the owner removes them, because the saved state may
// still name them.
func (s *sorter) compact() error {
	if len(s.files) < sortFiles {
		return nil
	}
	m, err := s.merge()
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // it was only read
	name, w, err := s.create()
	if err != nil {
		return err
	}
	if err := writeAll(w, m); err != nil {
		return err
	}
	s.files = []string{name}
	return nil
}

// merge returns all flushed records, sorted.
func (s *sorter) merge() (*merged, error) {
	paths := make([]string, len(s.files))
	for i, name := range s.files {
		paths[i] = filepath.Join(s.dir, name)
	}
	return mergeFiles(paths)
}

// writeAll writes records to a file, and closes it.
func writeAll(w *recordWriter, from records) error {
	for {
		record, err := from.next()
		if errors.Is(err, io.EOF) {
			_, err = w.close()
			return err
		}
		if err == nil {
			err = w.add(record)
		}
		if err != nil {
			w.drop()
			return err
		}
	}
}
