package keys

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds of values.
const (
	// MaxCount is the most members that a gang may have.
	MaxCount = 100000
	// MaxGroups is how many gangs start together at most.
	MaxGroups = 64
	// MaxSlices is how many levels of a topology may have slices.
	MaxSlices = 3
	// MaxStages is far beyond what workloads have.
	MaxStages = 100
)

// Kind is what a value is.
type Kind int

// The kinds of values.
const (
	// Text is any text: a name that is looked up, or what Lockstep itself writes.
	Text Kind = iota
	// Enum is one of OneOf.
	Enum
	// Integer is a whole number from Min to Max, in digits.
	Integer
	// Duration is a Go duration, positive unless Zero.
	Duration
	// LabelKey is the key of a label of nodes.
	LabelKey
	// Pattern is a text with a structure, most often JSON.
	Pattern
)

// Value is which values a key takes. An empty value always means the default.
type Value struct {
	Kind Kind
	// OneOf are the values of an Enum; the first is the default, if there are several.
	OneOf    []string
	Min, Max int
	Zero     bool
	// Pattern is a regular expression for the whole of a value, and MaxItems how many parts between commas it has at
	// most; 0 for any number. What reads the key may refuse more.
	Pattern  string
	MaxItems int
	// Want says what is accepted, after "is not".
	Want string
}

func oneOf(values ...string) Value {
	want := values[0]
	if len(values) > 1 {
		want = "one of " + strings.Join(values, ", ")
	}
	return Value{Kind: Enum, OneOf: values, Want: want}
}

func integer(from, to int) Value {
	return Value{Kind: Integer, Min: from, Max: to, Want: fmt.Sprintf("a whole number from %d to %d", from, to)}
}

var labelKey = Value{Kind: LabelKey, Want: "a node label key"}

// ParseInteger reads an Integer: digits only, within its bounds.
func (v Value) ParseInteger(value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("reading a number: %w", err)
	}
	if int(n) < v.Min || int(n) > v.Max {
		return 0, fmt.Errorf("reading number %q: want %s", value, v.Want)
	}
	return int(n), nil
}

// Parts of patterns.
const (
	space      = `[ \t\r\n]*`
	number     = `([1-9][0-9]{0,4}|100000)` // from 1 to MaxCount
	count      = `0*` + number
	name       = `[a-z0-9]([-a-z0-9.]*[a-z0-9])?`
	labelValue = `[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?`

	topology      = `"topology"` + space + `:` + space + `"(` + name + `/)?` + labelValue + `"`
	size          = `"size"` + space + `:` + space + number
	slice         = `\{` + space + topology + space + `,` + space + size + space + `\}`
	sliceReversed = `\{` + space + size + space + `,` + space + topology + space + `\}`
)

// list and object are patterns of JSON.
func list(item string) string    { return sequence(`\[`, item, `\]`) }
func object(field string) string { return sequence(`\{`, field, `\}`) }

func sequence(begin, item, end string) string {
	return space + begin + space + `((` + item + `)` + space + `(,` + space + `(` + item + `)` + space +
		`)*)?` + end + space
}
