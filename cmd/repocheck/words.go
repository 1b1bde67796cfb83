package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// An avoidedPhrase is one that docs/development.md asks to write otherwise.
type avoidedPhrase struct {
	sign   string // what every match contains, in lower case: it is looked for first, since that is much faster
	phrase *regexp.Regexp
	write  string // what to write instead
}

// avoided are the phrases that Go files, pages and protos avoid.
var avoided = []avoidedPhrase{
	{"tell", regexp.MustCompile(`\btells? whether\b`), "reports whether"},
	{"tells that", regexp.MustCompile(`\btells that\b`), "reports that"},
	{"; ", regexp.MustCompile(`; (0|-1|nil|empty): `), "; 0 means …, or 0 disables it"},
	{" off", regexp.MustCompile(`\b[Bb]r(eaks?|eaking|oke|oken) off\b`), "interrupted"},
	{"asks nobody", regexp.MustCompile(`\basks nobody\b`), "authentication is off"},
	{"on this machine only", regexp.MustCompile(`\blistens on this machine only\b`), "binds to loopback"},
	{"who is not known", regexp.MustCompile(`\bwho is not known\b`), "an unauthenticated caller"},
	{"asks who calls", regexp.MustCompile(`\b[Aa]sks who calls\b`), "authenticates the caller"},
	{"that lack", regexp.MustCompile(`\b[Pp]ermissions? that lacks?\b`), "a missing permission"},
	{"mend", regexp.MustCompile(`\b[Mm]end(s|ed|ing)?\b`), "repair"},
	{"reviv", regexp.MustCompile(`\b[Rr]eviv(e|es|ed|ing) (the|a) (store|projection|generation)\b`), "recover"},
	{"former ", regexp.MustCompile(`\b[Ff]ormer (one|generation|version|epoch)s?\b`), "previous"},
	{"seam", regexp.MustCompile(`\b[Ss]eams?\b`), "the boundary between archive and stream"},
	{" out", regexp.MustCompile(`\b[Cc]rowds? out\b`), "evict"},
	{"widespread", regexp.MustCompile(`(^|[^-])\b[Ww]idespread\b`), "high fan-out"},
	{"upkeep", regexp.MustCompile(`\b[Uu]pkeep\b`), "maintenance"},
	{"cut prints", regexp.MustCompile(`\b[Cc]ut prints\b`), "truncated fingerprints"},
	{"quiet ", regexp.MustCompile(`\b[Qq]uiet (ones|connections)\b`), "idle connections"},
	{"look-up", regexp.MustCompile(`\b[Ll]ook-ups?\b`), "lookup"},
	{"for want of", regexp.MustCompile(`\b[Ff]or want of\b`), "for lack of"},
	{"in the place of", regexp.MustCompile(`\b[Ii]n the place of\b`), "instead of"},
	{"at the most", regexp.MustCompile(`\b[Aa]t the most\b`), "at most"},
	{"our", regexp.MustCompile(`\b([Cc]ol|[Ff]lav|[Bb]ehavi|[Nn]eighb|[Hh]on)our`), "the American spelling"},
}

// avoidedHere are phrases that Go files and pages avoid as well. The protos, and the reference that
// is made of them, still have some.
var avoidedHere = []avoidedPhrase{
	{"tells ", regexp.MustCompile(`\btells (how|what|when|where|which|who|why)\b`), "reports, says"},
}

// avoidedInPages are phrases that pages avoid besides. Comments still have some of them.
var avoidedInPages = []avoidedPhrase{
	{" on", regexp.MustCompile(`\b(goes|went) on\b`), "continues"},
	{"me", regexp.MustCompile(`\bc(omes|ame) to (be|have|this|that|its)\b`), "becomes, reaches"},
	{"s of outboxes", regexp.MustCompile(`\b([Tt]op|[Hh]ead)s of outboxes\b`), "newest pins of outboxes"},
	{"vitals", regexp.MustCompile(`\b[Vv]itals\b`), "health"},
	{"asked", regexp.MustCompile(`\b[Ww]ithout being asked\b|\bunasked\b`), "automatically"},
	{"where nobody", regexp.MustCompile(`\b[Ww]here nobody\b`), "without a caller"},
	{"by name of", regexp.MustCompile(`\b[Bb]y name of\b`), "and names"},
	{"spoilt", regexp.MustCompile(`\b[Ss]poilt\b`), "damaged"},
	{"shall", regexp.MustCompile(`\b[Ss]hall\b`), "must"},
}

// notPages are Markdown files that are generated, that a program wrote, or that tell of the past in
// its own words.
var notPages = []string{"CHANGELOG.md", "docs/api.md", "docs/configuration.md", "docs/performance/table.md"}

// checkWords returns where a repository has phrases that are to be avoided: in Go files, pages and
// protos. Generated code says what its source says.
func checkWords(repo fs.FS) (problems []string, err error) {
	err = fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if isForeign(name) || name == "bin" {
				return fs.SkipDir
			}
			return nil
		case !isProse(name):
			return nil
		}
		data, err := fs.ReadFile(repo, name)
		if err != nil {
			return err
		}
		phrases := avoided
		switch ext := path.Ext(name); {
		case ext == ".go":
			phrases = slices.Concat(avoided, avoidedHere)
		case ext == ".md" && !slices.Contains(notPages, name):
			phrases = slices.Concat(avoided, avoidedHere, avoidedInPages)
		}
		number := 0
		for line := range strings.Lines(string(data)) {
			number++
			lower := strings.ToLower(line)
			for _, a := range phrases {
				if !strings.Contains(lower, a.sign) {
					continue
				}
				if found := a.phrase.FindString(line); found != "" {
					problems = append(problems, fmt.Sprintf("%s:%d: %q, write: %s", name, number, found, a.write))
				}
			}
		}
		return nil
	})
	return problems, err
}

// isForeign reports whether a folder holds what others wrote or tools made: one whose name begins
// with a dot, or packages of npm.
func isForeign(folder string) bool {
	base := path.Base(folder)
	return base != "." && strings.HasPrefix(base, ".") || base == "node_modules"
}

// isProse reports whether a file has text of people that is checked. The list of phrases itself
// would violate every rule.
func isProse(name string) bool {
	switch {
	case strings.HasPrefix(name, "cmd/repocheck/words"), strings.HasSuffix(name, ".pb.go"), strings.HasSuffix(name, ".connect.go"):
		return false
	}
	switch path.Ext(name) {
	case ".go", ".md", ".proto":
		return true
	}
	return false
}
