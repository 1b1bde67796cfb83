package redis

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// pattern is a text that captures parts of the texts that match it, such as "followers:{user}".
type pattern struct {
	text  string
	re    *regexp.Regexp
	roles []role
	// prefix is the literal text before the first capture.
	prefix string
	// unit is the unit of a captured time.
	unit unit
}

// Errors of patterns.
var (
	errBrace    = errors.New("has a brace that is not closed or not opened: captures are {role}, a brace itself is {{ or }}")
	errAdjacent = errors.New("has two captures with nothing between them: where does the first one end?")
)

// mayBeEmpty reports whether a capture of this role may be empty. For example, a board may have no
// title.
func mayBeEmpty(as role) bool {
	return rolesOf(roleTitle, roleAttributes, roleNothing).has(as)
}

// piece is a part of a pattern: a literal text or a capture.
type piece struct {
	literal string
	capture string
}

// cutPieces splits a pattern into literal texts and captures.
func cutPieces(text string) ([]piece, error) {
	var pieces []piece
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			pieces = append(pieces, piece{literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case (c == '{' || c == '}') && strings.HasPrefix(text[i+1:], string(c)):
			// A doubled brace stands for one brace.
			literal.WriteByte(c)
			i++
		case c == '{':
			end := strings.IndexAny(text[i+1:], "{}")
			if end < 1 || text[i+1+end] != '}' {
				return nil, errBrace
			}
			flush()
			if n := len(pieces); n > 0 && pieces[n-1].capture != "" {
				return nil, errAdjacent
			}
			pieces = append(pieces, piece{capture: text[i+1 : i+1+end]})
			i += 1 + end
		case c == '}':
			return nil, errBrace
		default:
			literal.WriteByte(c)
		}
	}
	flush()
	return pieces, nil
}

// parsePattern parses a pattern. A captured text contains neither the character before the capture
// in the pattern nor the character after it, so that "feed:{user}" does not match
// "feed:ann:boards". If the name of a capture ends with "...", the text may contain both.
func parsePattern(text string) (*pattern, error) {
	pieces, err := cutPieces(text)
	if err != nil {
		return nil, err
	}
	p := &pattern{text: text}
	var re strings.Builder
	re.WriteString(`(?s)\A`)
	for i, pc := range pieces {
		if pc.capture == "" {
			if len(p.roles) == 0 {
				p.prefix += pc.literal
			}
			re.WriteString(regexp.QuoteMeta(pc.literal))
			continue
		}

		name, mayContainAll := strings.CutSuffix(pc.capture, "...")
		as, err := p.role(name)
		if err != nil {
			return nil, err
		}
		p.roles = append(p.roles, as)

		// excluded are the characters that the captured text does not contain.
		var excluded string
		if i > 0 {
			before := []rune(pieces[i-1].literal)
			excluded = string(before[len(before)-1])
		}
		if i+1 < len(pieces) {
			excluded += string([]rune(pieces[i+1].literal)[0])
		}
		times := "+"
		if mayBeEmpty(as) {
			times = "*"
		}
		if mayContainAll || excluded == "" {
			re.WriteString(`(.` + times + `)`)
		} else {
			re.WriteString(`([^` + quoteClass(excluded) + `]` + times + `)`)
		}
	}
	re.WriteString(`\z`)
	p.re, err = regexp.Compile(re.String())
	if err != nil {
		return nil, fmt.Errorf("is no pattern: %w", err)
	}
	return p, nil
}

// quoteClass quotes characters for a class of characters in a regular expression.
func quoteClass(s string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, `\x{%x}`, r)
	}
	return b.String()
}

// role parses the name of a capture. The name of a time includes its unit, which becomes the unit
// of the pattern.
func (p *pattern) role(name string) (role, error) {
	name, unitName, hasUnit := strings.Cut(name, ":")
	as, ok := roleNames[name]
	if !ok {
		return 0, fmt.Errorf("captures {%s}, which is none of %s", name, roleList(0))
	}
	if as != roleTime {
		if hasUnit {
			return 0, fmt.Errorf("captures {%s:%s}: only {time:…} has a unit", name, unitName)
		}
		return as, nil
	}
	u, ok := unitNames[unitName]
	if !hasUnit || !ok || u == unitNone {
		return 0, fmt.Errorf("captures a {time} without its unit: {time:s}, {time:ms}, {time:us}, or {time:auto} for a number that "+
			"is told by its magnitude or a written time (not %q)", unitName)
	}
	p.unit = u
	return as, nil
}

// match reports whether a text matches the pattern. It sets *into to the captured texts.
func (p *pattern) match(text string, into *captured) bool {
	at := p.re.FindStringSubmatchIndex(text)
	if at == nil {
		return false
	}
	for i, as := range p.roles {
		into[as] = text[at[2+2*i]:at[3+2*i]]
	}
	return true
}
