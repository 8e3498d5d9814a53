package gpucards

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func TestParseSizes(t *testing.T) {
	for sentence, c := range map[string]struct {
		value string
		total int64
		want  []int64
		err   string
	}{
		"two cards":             {"[8192,8192]", 16384, []int64{8192, 8192}, ""},
		"cards that differ":     {" [81920, 16384]\n", 98304, []int64{81920, 16384}, ""},
		"one card":              {"[1]", 1, []int64{1}, ""},
		"no list":               {"8192", 8192, nil, "a JSON list"},
		"cut off":               {"[8192,", 8192, nil, "a JSON list"},
		"more behind it":        {"[8192] [1]", 8192, nil, "a JSON list"},
		"nothing":               {"", 8192, nil, "a JSON list"},
		"null":                  {"null", 8192, nil, "a JSON list"},
		"an empty list":         {"[]", 0, nil, "a JSON list"},
		"words":                 {`["8Gi"]`, 8192, nil, "a JSON list"},
		"a fraction":            {"[8192.5]", 8192, nil, "a JSON list"},
		"beyond counting":       {"[9223372036854775808]", 8192, nil, "a JSON list"},
		"too many":              {"[" + strings.Repeat("1,", Most) + "1]", Most + 1, nil, "1 to 256 amounts"},
		"a card of nothing":     {"[8192,0]", 8192, nil, "above 0"},
		"less than nothing":     {"[16384,-8192]", 8192, nil, "above 0"},
		"a card that is null":   {"[8192,null]", 8192, nil, "above 0"},
		"more than there is":    {"[8192,8192]", 8192, nil, "whose sum is the 8192 MiB"},
		"less than there is":    {"[8192]", 16384, nil, "whose sum is the 16384 MiB"},
		"a sum beyond counting": {"[9223372036854775807,9223372036854775807,2]", 0, nil, "whose sum is the 0 MiB"},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := ParseSizes(c.value, c.total)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("the error is %v, want %q", err, c.err)
			}
		})
	}
}

func TestParseIndex(t *testing.T) {
	for value, want := range map[string]int{
		"0": 0, "1": 1, "2": -1, "-1": -1, "": -1, "01": -1, "+1": -1, " 1": -1, "1.0": -1, "one": -1, "99999999999999999999": -1,
	} {
		got, err := ParseIndex(value, 2)
		if (err == nil) != (want >= 0) || err == nil && got != want {
			t.Errorf("%q is card %d of 2, error %v, want %d", value, got, err, want)
		}
	}
}

// FuzzParse checks for any input: sizes are above 0 and add up to the total, an index is that of an
// existing card, and what is read is written out the same.
func FuzzParse(f *testing.F) {
	f.Add("[8192,8192]", int64(16384), "1")
	f.Add("[9223372036854775807,9223372036854775807,2]", int64(0), "-1")
	f.Add("[1,null]", int64(1), "0x1")
	f.Add("{}", int64(-1), "1e0")
	f.Fuzz(func(t *testing.T, list string, total int64, index string) {
		sizes, err := ParseSizes(list, total)
		if (err == nil) != (len(sizes) > 0) || len(sizes) > Most {
			t.Fatalf("%q of %d is %v, error %v", list, total, sizes, err)
		}
		sum := new(big.Int)
		for _, size := range sizes {
			if size <= 0 {
				t.Errorf("%q has a card of %d", list, size)
			}
			sum.Add(sum, big.NewInt(size))
		}
		if err == nil {
			if sum.Cmp(big.NewInt(total)) != 0 {
				t.Errorf("%q adds up to %d, want %d", list, sum, total)
			}
			written, err := json.Marshal(sizes)
			must.Succeed(t, err)
			again, err := ParseSizes(string(written), total)
			if diff := cmp.Diff(sizes, again); diff != "" || err != nil {
				t.Errorf("written out and read again, error %v (-want +got):\n%s", err, diff)
			}
		}
		if i, err := ParseIndex(index, len(sizes)); err == nil && (i < 0 || i >= len(sizes) || strconv.Itoa(i) != index) {
			t.Errorf("%q is card %d of %d", index, i, len(sizes))
		}
	})
}
