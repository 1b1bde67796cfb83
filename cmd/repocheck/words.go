package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// An avoidedPhrase is a phrase that was replaced once and must not come back, as the section Words
// of docs/development.md says.
type avoidedPhrase struct {
	// sign is a text in lower case that every match of phrase contains. To look for sign first is
	// much faster.
	sign   string
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

// avoidedOutsideProtos are phrases that Go files and pages avoid as well. The protos, and the
// reference that is made of them, still have some of these phrases.
var avoidedOutsideProtos = []avoidedPhrase{
	{"tells ", regexp.MustCompile(`\btells (how|what|when|where|which|who|why)\b`), "reports, says"},
}

// avoidedInPages are phrases that only pages avoid. Comments still have some of them.
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

// notPages are Markdown files that are generated, and the changelog, which has the words of its
// time. They avoid only the phrases of avoided.
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
			phrases = slices.Concat(avoided, avoidedOutsideProtos)
		case ext == ".md" && !slices.Contains(notPages, name):
			phrases = slices.Concat(avoided, avoidedOutsideProtos, avoidedInPages)
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

// isForeign reports whether a folder holds files that people of this project did not write: a folder
// whose name begins with a dot, or the packages of npm.
func isForeign(folder string) bool {
	base := path.Base(folder)
	return base != "." && strings.HasPrefix(base, ".") || base == "node_modules"
}

// isProse reports whether a file has text that people wrote and that is checked. It leaves out the
// list of phrases itself and its test, which contain what must not be written.
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
