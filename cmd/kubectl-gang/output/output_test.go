package output

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

type item struct {
	Name  string `json:"name"`
	Phase string `json:"phase"`
	More  int    `json:"more"`
}

func columns() Columns[item] {
	return Columns[item]{
		{Name: "Name", Of: func(i item) any { return i.Name }},
		{Name: "Phase", Of: func(i item) any { return i.Phase }},
		{Name: "More", Wide: true, Of: func(i item) any { return i.More }},
	}
}

// printed prints each list by itself, as a watch does.
func printed(t *testing.T, args []string, coloured bool, lists ...[]item) string {
	t.Helper()
	f, cmd := &flags{}, &cobra.Command{}
	f.addTo(cmd)
	must.Succeed(t, cmd.ParseFlags(args))
	var out bytes.Buffer
	p, err := f.printer(&out)
	must.Succeed(t, err)
	p.coloured = p.coloured || coloured
	for _, list := range lists {
		must.Succeed(t, Print(p, "ItemList", columns(), list))
	}
	return out.String()
}

func TestPrint(t *testing.T) {
	first, second := []item{{"a-long-name", "Running", 7}}, []item{{"b", "Failed", 8}}
	for sentence, c := range map[string]struct {
		args     []string
		coloured bool
		lists    [][]item
		want     string
	}{
		"a table": {nil, false, [][]item{first}, "NAME          PHASE\na-long-name   Running\n"},
		"what comes later has the columns of what was there, and no header": {
			nil, false, [][]item{first, second}, "NAME          PHASE\na-long-name   Running\nb             Failed\n",
		},
		"a wide table":                         {[]string{"-o", "wide"}, false, [][]item{first}, "NAME          PHASE     MORE\na-long-name   Running   7\n"},
		"without a header":                     {[]string{"-o", "wide", "--no-headers"}, false, [][]item{first}, "a-long-name   Running   7\n"},
		"on a terminal":                        {[]string{"-o", "wide"}, true, [][]item{first, second}, "NAME          PHASE     MORE\na-long-name   \x1b[32mRunning\x1b[0m   7\nb             \x1b[31mFailed\x1b[0m    8\n"},
		"nothing":                              {nil, false, [][]item{nil}, ""},
		"YAML":                                 {[]string{"-o", "yaml"}, false, [][]item{first}, "apiVersion: kubectl.lockstep.dev/v1alpha1\nitems:\n- more: 7\n  name: a-long-name\n  phase: Running\nkind: ItemList\n"},
		"nothing as JSON is no null":           {[]string{"-o", "json"}, false, [][]item{nil}, "{\n    \"kind\": \"ItemList\",\n    \"apiVersion\": \"kubectl.lockstep.dev/v1alpha1\",\n    \"items\": []\n}\n"},
		"the case of a format does not matter": {[]string{"-o", "JSONPATH={.items[0].more}"}, false, [][]item{first}, "7"},
		"a template gets all there is":         {[]string{"-o", "jsonpath={.items[0].more}"}, false, [][]item{first}, "7"},
	} {
		t.Run(sentence, func(t *testing.T) {
			// Cells of the last column may be padded.
			var lines []string
			for line := range strings.Lines(printed(t, c.args, c.coloured, c.lists...)) {
				end := ""
				if strings.HasSuffix(line, "\n") {
					end = "\n"
				}
				lines = append(lines, strings.TrimRight(line, " \n")+end)
			}
			if diff := cmp.Diff(c.want, strings.Join(lines, "")); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownFormat(t *testing.T) {
	for format, want := range map[string]string{
		"xml":          `checking --output: "xml" is none of table, wide, json, yaml`,
		"json=":        `checking --output: "json=" is none of table`,
		"jsonpath":     `checking --output: "jsonpath" is none of table`,
		"go-template=": `checking --output: "go-template=" is followed by no template`,
	} {
		f := &flags{format: format}
		if _, err := f.printer(&bytes.Buffer{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestCells(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	var nobody *int32
	for sentence, c := range map[string]struct{ got, want any }{
		"no number":           {OrNone(nobody), "<none>"},
		"a number":            {OrNone(new(int32(7))), "7"},
		"no text":             {OrNone(""), "<none>"},
		"text":                {OrNone("x"), "x"},
		"an age":              {Age(*at(-90 * time.Second), now), "90s"},
		"no age":              {Age(metav1.Time{}, now), "<none>"},
		"it ends":             {Until(at(2*time.Hour), now), "120m"},
		"it is about to":      {Until(at(-time.Second), now), "0s"},
		"it does not end":     {Until(nil, now), "never"},
		"what has a text":     {OrNone(new(time.Second)), "1s"},
		"a list of no things": {OrNone(strings.Join(nil, ",")), "<none>"},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}
