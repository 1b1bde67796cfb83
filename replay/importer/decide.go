package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay"
)

// inspection decides how a file is read. An import cannot be undone, so the inspection reads the
// whole file first. It returns an error if the file can be read in more than one way.
type inspection struct {
	Options
	open      func() (*file, error)
	kind      kindColumns
	mapping   *mapping
	constants [numRoles]string
	// start is the recorded start of the import. Times must not be much later.
	start events.Micros
}

var errNoRecords = errors.New("the file has no rows")

// newInspection checks the options. It does not read the file yet.
func newInspection(o Options, start events.Micros) (*inspection, error) {
	k, constants, err := columnsOfKind(o.Kind, o.Format.Constants)
	if err != nil {
		return nil, err
	}
	m, err := k.parseMapping(o.Format.Columns)
	if err != nil {
		return nil, err
	}
	if value := constants[when]; value != "" {
		if _, _, err := o.Format.TimeUnit.parseRecordTime(value, start); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConstant, err)
		}
	}
	open := func() (*file, error) { return openFile(o.Path) }
	return &inspection{Options: o, open: open, kind: k, mapping: m, constants: constants, start: start}, nil
}

// findShape reads the whole file, once for each delimiter that it may have, and decides its shape.
func (in *inspection) findShape(ctx context.Context) (*shape, error) {
	end, err := in.findLineEnd()
	if err != nil {
		return nil, err
	}

	delimiters := []Delimiter{Tab, Comma, Semicolon, Space}
	if in.Format.Delimiter != 0 {
		delimiters = []Delimiter{in.Format.Delimiter}
	}

	var all []*measurement
	for _, d := range delimiters {
		me, err := in.measureWithDelimiter(ctx, shape{delimiter: d, lineEnd: end, quotes: in.Format.Quotes == nil || *in.Format.Quotes})
		if err != nil {
			return nil, err
		}
		if me != nil {
			all = append(all, me)
		}
	}

	me, err := in.chooseMeasurement(all)
	if err != nil {
		return nil, err
	}
	return in.decideShape(me, end)
}

// findLineEnd reads the file up to the first line end. See the function of the same name.
func (in *inspection) findLineEnd() (byte, error) {
	f, err := in.open()
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return findLineEnd(f.Reader)
}

// measureWithDelimiter measures the whole file with the shape s. It returns nil if the first record
// has too few fields.
func (in *inspection) measureWithDelimiter(ctx context.Context, s shape) (*measurement, error) {
	f, err := in.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read

	// If there are constants, the file may have a single column. No delimiter shows then.
	minFields := min(2, max(1, len(in.kind.required)))
	if in.mapping != nil {
		minFields = max(minFields, in.mapping.minFields())
	}
	return measureFile(ctx, f, s, minFields, in.start, func() {
		in.Observe(Progress{PhaseProgress: f.progress(replay.Checking)})
	})
}

// chooseMeasurement returns the measurement with the delimiter of the file, or an error if more
// than one delimiter is possible.
func (in *inspection) chooseMeasurement(all []*measurement) (*measurement, error) {
	switch {
	case len(all) == 0 && in.mapping != nil && in.mapping.minFields() > 1:
		return nil, fmt.Errorf("%w: there is no column %d in the first row with the delimiter %s: give --delimiter",
			ErrColumns, in.mapping.minFields(), in.delimiterNames())
	case len(all) == 0:
		return nil, fmt.Errorf("the first row has a single column with the delimiter %s: give --delimiter", in.delimiterNames())
	case !slices.ContainsFunc(all, func(me *measurement) bool { return me.width() > 0 }):
		return nil, errNoRecords
	case in.Format.Delimiter != 0:
		return all[0], nil
	}

	// A delimiter is possible if most rows have as many fields as the first, and if the number of
	// other rows is allowed.
	var possible, single []*measurement
	for _, me := range all {
		mostDiffer := 2*me.misfits >= max(me.records, 1)
		switch {
		case mostDiffer || me.misfits > in.MaxRejects.allowed(me.records):
		case me.width() == 1:
			single = append(single, me)
		default:
			possible = append(possible, me)
		}
	}
	switch {
	case len(possible) == 0 && len(single) > 0:
		return single[0], nil
	case len(possible) == 0:
		return in.leastMisfits(all)
	}

	// Ids have no spaces and no tabs, but times and titles do. So if another delimiter is chosen
	// wrongly, the ids contain spaces and are rejected. But if the space is chosen wrongly, the ids
	// may be valid.
	withoutSpaces := slices.DeleteFunc(slices.Clone(possible), func(me *measurement) bool { return me.delimiter == Space })
	if len(withoutSpaces) > 0 {
		possible = withoutSpaces
	}

	named := slices.DeleteFunc(slices.Clone(possible), func(me *measurement) bool { return !in.isNamed(me) })
	if len(named) > 0 {
		possible = named
	}
	if len(possible) == 1 {
		return possible[0], nil
	}

	readings := make([]string, 0, len(possible))
	for _, me := range possible {
		readings = append(readings, fmt.Sprintf("by %s (first row: %s)", me.delimiter, quoteAll(me.firstFields())))
	}
	return nil, fmt.Errorf("it could be delimited %s: give --delimiter", strings.Join(readings, " or "))
}

// leastMisfits returns the measurement with the fewest rows that do not fit, so that the report
// shows these rows. It fails if there are several.
func (in *inspection) leastMisfits(all []*measurement) (*measurement, error) {
	var least []*measurement
	for _, me := range all {
		if len(least) > 0 && me.misfits < least[0].misfits {
			least = nil
		}
		if len(least) == 0 || me.misfits == least[0].misfits {
			least = append(least, me)
		}
	}
	if len(least) != 1 || 2*least[0].misfits >= least[0].records {
		return nil, fmt.Errorf("most rows have another number of fields than the first with the delimiter %s: give --delimiter",
			in.delimiterNames())
	}
	return least[0], nil
}

// delimiterNames returns the names of the delimiters that the file may have.
func (in *inspection) delimiterNames() string {
	if in.Format.Delimiter != 0 {
		return in.Format.Delimiter.String()
	}
	return "tab, comma, semicolon or space"
}

// isNamed reports whether the first record, or a comment before it, contains the names of all
// required columns.
func (in *inspection) isNamed(me *measurement) bool {
	for _, names := range [][]string{me.first, in.commentNames(me)} {
		if in.mapping != nil {
			if _, err := in.mapping.resolve(names); in.mapping.needsHeader() && err == nil {
				return true
			}
			continue
		}
		if c, err := in.kind.columnsByName(names); err == nil && len(c.missingRoles(in.kind.required)) == 0 {
			return true
		}
	}
	return false
}

// commentNames returns the fields of the last comment that has text.
func (in *inspection) commentNames(me *measurement) []string {
	for _, c := range slices.Backward(me.comments) {
		if c.names() != "" {
			names, _ := me.delimiter.split(nil, c.names(), me.quotes) // a comment that cannot be split names no columns
			return names
		}
	}
	return nil
}

// decideShape derives the shape of the file from the measurement. end is the last byte of a line.
func (in *inspection) decideShape(me *measurement, end byte) (*shape, error) {
	s := &shape{
		delimiter: me.delimiter,
		quotes:    me.quotes,
		lineEnd:   end,
		columns:   noColumns(),
		constants: in.constants,
		absent:    in.Format.Null,
		timeUnit:  in.Format.TimeUnit,
	}
	if err := in.checkQuotes(me); err != nil {
		return nil, err
	}
	rows, err := in.decideComments(s, me)
	if err != nil {
		return nil, err
	}
	if me.first == nil {
		me.first = me.firstFields() // every line of the file begins with #, so the first record is one of these
		me.columns = make([]columnValues, len(me.first))
	} else {
		rows = append(rows, me.first)
	}
	s.fields = len(me.first)
	if s.fields == 0 {
		return nil, errNoRecords
	}

	// decideComments has decided about lines that begin with #. If none of them is a row, the first
	// record may still name the columns.
	if len(rows) == 1 && !s.headed {
		if err := in.decideHeader(s, me); err != nil {
			return nil, err
		}
		if s.headed {
			rows = nil
		}
	}

	// The measurement has numbered the records from the first one that does not begin with #, and
	// has not added the values of that one. Correct the numbers, and add the values of all rows
	// before the second record.
	for c := range me.columns {
		me.columns[c].shiftRecords(len(rows) - 1)
	}
	for i, fields := range rows {
		if len(fields) == s.fields {
			for c, value := range fields {
				me.columns[c].addValue(value, uint64(i+1), in.start)
			}
		}
	}

	if err := in.decideColumns(s, me); err != nil {
		return nil, err
	}
	if err := in.checkRemarks(s, me); err != nil {
		return nil, err
	}
	if err := in.checkTimes(s, me); err != nil {
		return nil, err
	}
	return s, in.decideAbsent(s, me)
}

// checkQuotes returns an error if it is not certain what double quotes mean in the file.
func (in *inspection) checkQuotes(me *measurement) error {
	isRarelyQuoted := me.delimiter == Tab || me.delimiter == Space
	switch {
	case me.quoteError != nil && in.Format.Quotes != nil:
		return fmt.Errorf("%w, so it is not certain where later rows begin: repair the line", me.quoteError)
	case me.quoteError != nil:
		return fmt.Errorf("%w, so it is not certain where later rows begin: repair the line, or give --no-quotes if double quotes are "+
			"characters like others in this file", me.quoteError)
	case me.multiLine > 0 && isRarelyQuoted && in.Format.Quotes == nil:
		return fmt.Errorf("%d rows begin a field with a double quote that ends on a later line: give --quotes if fields are enclosed in double "+
			"quotes, or --no-quotes if these are characters like others", me.multiLine)
	}
	return nil
}

// decideComments decides which of the lines before the first record that begin with # are comments.
// It returns the fields of the others, which are rows.
func (in *inspection) decideComments(s *shape, me *measurement) ([][]string, error) {
	fields := len(me.first)
	rowsBegin := len(me.comments)
	var rows [][]string
	for i, c := range me.comments {
		split, err := s.delimiter.split(nil, c.text, s.quotes)
		if err != nil {
			return nil, fmt.Errorf("line %d (%q) begins with # and has quotes that do not enclose a field (%w): remove it if it is a comment",
				c.number, c.excerpt(), err)
		}
		if c.isRemark() && len(rows) == 0 {
			continue
		}
		if fields == 0 {
			fields = len(split) // every line of the file begins with #
		}
		if len(split) != fields && len(rows) == 0 {
			continue
		}
		if len(rows) == 0 {
			rowsBegin = i
		}
		rows = append(rows, split)
	}

	s.comments = rowsBegin
	if len(rows) == 0 {
		return nil, nil
	}

	// It is not certain whether this line is a row.
	line := me.comments[rowsBegin]
	names, _ := s.delimiter.split(nil, line.names(), s.quotes) // it was split before
	switch in.Format.Header {
	case HeaderNo:
	case HeaderYes:
		s.header = names
		s.headed = true
		rows = rows[1:]
	default:
		c, err := in.kind.columnsByName(names)
		if len(rows) == 1 && err == nil && len(c.missingRoles(in.kind.required)) == 0 && me.first != nil {
			s.comments = len(me.comments)
			return nil, nil
		}
		return nil, fmt.Errorf("line %d (%q) begins with # and could be a row, the names of the columns or a comment: give --no-header if it is "+
			"a row, --header if it names the columns, or remove it if it is a comment", line.number, line.excerpt())
	}

	me.records += uint64(len(rows))
	return rows, nil
}

// checkRemarks returns an error if a line that was taken for a comment could be a row. No id begins
// with "# ", but a title may.
func (in *inspection) checkRemarks(s *shape, me *measurement) error {
	isID := func(r role) bool { return r != title && r != attributes && r != when }
	for r, i := range s.columns {
		if i == 0 && isID(role(r)) {
			return nil
		}
	}
	if s.delimiter == Space {
		return nil // # is a field of its own
	}
	for _, c := range me.comments[:s.comments] {
		fields, err := s.delimiter.split(nil, c.text, s.quotes)
		if err != nil || len(fields) != s.fields {
			continue
		}
		names, _ := s.delimiter.split(nil, c.names(), s.quotes) // it was split before
		if found, err := in.kind.columnsByName(names); err == nil && len(found.missingRoles(in.kind.required)) == 0 {
			continue
		}
		return fmt.Errorf("line %d (%q) begins with # and could be a row or a comment: remove it if it is a comment, or move it below "+
			"another row if it is a row", c.number, c.excerpt())
	}
	return nil
}

// decideHeader decides whether the first record names the columns.
func (in *inspection) decideHeader(s *shape, me *measurement) error {
	names := in.commentNames(me)
	if s.comments == 0 {
		names = nil
	}
	headed, err := in.kind.isHeader(in.Format.Header, in.mapping, me, names)
	switch {
	case err != nil:
		return err
	case headed:
		s.header = me.first
		s.headed = true
	case len(names) == s.fields:
		s.header = names
	}
	return nil
}

// decideColumns finds the columns: by --columns, by the names in the file, or by position if no
// other order is possible.
func (in *inspection) decideColumns(s *shape, me *measurement) (err error) {
	if in.mapping != nil {
		s.columns, err = in.mapping.resolve(s.header)
	} else {
		s.columns, err = in.columnsWithoutMapping(s, me)
	}
	if err != nil {
		return err
	}
	for r, i := range s.columns {
		if i >= s.fields {
			return fmt.Errorf("%w: %s would be column %d, but the first row has %d", ErrColumns, role(r), i+1, s.fields)
		}
	}
	return nil
}

// columnsWithoutMapping finds the columns by their names. If no required column has a name, it
// takes the usual positions, provided that the file fits them.
func (in *inspection) columnsWithoutMapping(s *shape, me *measurement) (columns, error) {
	k := in.kind
	found, err := k.columnsByName(s.header)
	if err != nil {
		return found, err
	}
	missing := found.missingRoles(k.required)
	if len(missing) == 0 {
		return found, nil
	}

	// A file that names some of the required columns is not read by position: the names say that
	// its order is another one.
	hasNoNames := len(missing) == len(k.required)
	hasUsualWidth := s.fields >= len(k.required) && s.fields <= len(k.positions)
	if hasNoNames && hasUsualWidth && in.fitsPositions(me) {
		return k.columnsByPosition(s.fields), nil
	}
	return found, fmt.Errorf("cannot tell which of the %d columns is the %s: give --columns (%s)\n%s",
		s.fields, strings.Join(missing, " or the "), k.describeColumns(), k.describeNames())
}

// fitsPositions reports whether the column at the usual position of the time contains times.
func (in *inspection) fitsPositions(me *measurement) bool {
	i := in.kind.columnsByPosition(len(me.first))[when]
	if i < 0 {
		return true
	}
	fitting := me.records - me.misfits
	times := me.columns[i].times()
	return 2*times > fitting && fitting-times <= in.MaxRejects.allowed(me.records)
}

// checkTimes returns an error if the unit of the times is not certain, or if an unused column seems
// to contain the times.
func (in *inspection) checkTimes(s *shape, me *measurement) error {
	if i := s.columns[when]; i >= 0 && s.timeUnit == UnitAuto {
		found := make([]string, 0, len(timeUnits))
		for u, e := range me.columns[i].units {
			if e.count > 0 {
				found = append(found, fmt.Sprintf("like %s (%s: %q)", timeUnits[u].name, describeRow(e), e.text))
			}
		}
		if len(found) > 1 {
			return fmt.Errorf("%s has numbers that look %s: give --time-unit, or write all times in one unit",
				s.columnName(i), strings.Join(found, " and "))
		}
	}
	if s.hasTime() || in.mapping != nil {
		return nil // a user who gives --columns without a time has decided
	}
	for i := range me.columns {
		if me.columns[i].looksLikeTimes() && !slices.Contains(s.columns[:], i) {
			return fmt.Errorf("%s has times, but it is not known as the time of the rows, and without a time every row gets that of the import: "+
				"give --columns with time=%d, or without a time (%s)", s.columnName(i), i+1, in.columnsFlag(s))
		}
	}
	return nil
}

// columnsFlag returns the flag --columns for the columns that were found.
func (in *inspection) columnsFlag(s *shape) string {
	var parts []string
	for _, r := range slices.Concat(in.kind.required, in.kind.optional) {
		if i := s.columns[r]; i >= 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", r, i+1))
		}
	}
	return "--columns " + strings.Join(parts, ",")
}

// decideAbsent decides which texts stand for an absent value. COPY of PostgreSQL prints \N, which
// cannot mean anything else.
func (in *inspection) decideAbsent(s *shape, me *measurement) error {
	if in.Format.Null != nil {
		return nil
	}
	for r, i := range s.columns {
		if i < 0 {
			continue
		}
		isFreeText := role(r) == title || role(r) == attributes
		for _, e := range me.columns[i].absent {
			switch {
			case e.text == `\N`:
				if !slices.Contains(s.absent, e.text) {
					s.absent = append(s.absent, e.text)
				}
			case isFreeText && e.text != "NULL": // a title may be any word
			default:
				return fmt.Errorf("%s, the %s, is %q in %d rows, first in %s: give --null %s if that stands for an absent value, or --null= if it "+
					"does not", s.columnName(i), role(r), e.text, e.count, describeRow(e), e.text)
			}
		}
	}
	return nil
}

// describeRow names the row of an example for people.
func describeRow(e example) string { return fmt.Sprintf("row %d", e.record) }
