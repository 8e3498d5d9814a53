package scenario

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Count is a number, a bound on one, or a choice: 3, ">=3", "<=3", "2..4", "0 or 4".
type Count struct {
	text   string
	ranges []countRange
}

type countRange struct{ least, most int }

// AtLeast returns the count of n or more.
func AtLeast(n int) Count {
	return Count{text: fmt.Sprintf(">=%d", n), ranges: []countRange{{n, math.MaxInt}}}
}

// UnmarshalJSON reads a number or a string.
func (c *Count) UnmarshalJSON(data []byte) error {
	text := string(data)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return fmt.Errorf("reading a count: %w", err)
		}
	}
	*c = Count{text: text}
	for choice := range strings.SplitSeq(text, " or ") {
		r, err := parseCountRange(strings.TrimSpace(choice))
		if err != nil {
			return fmt.Errorf(`reading count %q: want 3, ">=3", "<=3", "2..4" or "0 or 4": %w`, text, err)
		}
		c.ranges = append(c.ranges, r)
	}
	return nil
}

func parseCountRange(text string) (countRange, error) {
	if from, to, ok := strings.Cut(text, ".."); ok {
		least, err := strconv.Atoi(from)
		if err != nil {
			return countRange{}, err
		}
		most, err := strconv.Atoi(to)
		return countRange{least, most}, err
	}
	if rest, ok := strings.CutPrefix(text, ">="); ok {
		n, err := strconv.Atoi(strings.TrimSpace(rest))
		return countRange{n, math.MaxInt}, err
	}
	if rest, ok := strings.CutPrefix(text, "<="); ok {
		n, err := strconv.Atoi(strings.TrimSpace(rest))
		return countRange{0, n}, err
	}
	n, err := strconv.Atoi(text)
	return countRange{n, n}, err
}

// Has reports whether n is right.
func (c Count) Has(n int) bool {
	return slices.ContainsFunc(c.ranges, func(r countRange) bool { return r.least <= n && n <= r.most })
}

func (c Count) String() string { return c.text }

// MarshalText writes what was read.
func (c Count) MarshalText() ([]byte, error) { return []byte(c.text), nil }

// Pattern is a regular expression that has to match somewhere in the text.
type Pattern struct{ re *regexp.Regexp }

// UnmarshalJSON reads a string.
func (p *Pattern) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("reading a regular expression: %w", err)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return fmt.Errorf("reading a regular expression: %w", err)
	}
	p.re = re
	return nil
}

// Matches reports whether the text matches; it is true for a pattern that is not given.
func (p *Pattern) Matches(text string) bool { return p == nil || p.re == nil || p.re.MatchString(text) }

func (p *Pattern) String() string {
	if p == nil || p.re == nil {
		return ""
	}
	return p.re.String()
}

// MarshalText writes what was read.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// fullName gives a name its namespace.
func fullName(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return "default/" + name
}

// split returns the namespace and the name of a full or a short name.
func split(name string) (namespace, base string) {
	namespace, base, _ = strings.Cut(fullName(name), "/")
	return namespace, base
}

// glob reports whether a name with * and ? in it matches a full name. A * does not cross the slash.
func glob(pattern, name string) bool {
	ok, err := path.Match(fullName(pattern), name)
	return err == nil && ok
}

func globAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob(p, name) })
}

// merge applies a JSON merge patch (RFC 7386) to an object.
func merge(object, patch map[string]any) map[string]any {
	if object == nil {
		object = map[string]any{}
	}
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			inner, _ := object[key].(map[string]any)
			object[key] = merge(inner, value)
		default:
			object[key] = value
		}
	}
	return object
}
