package keys

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// noKeys are names under the prefix that are neither labels nor annotations.
var noKeys = []string{string(v1alpha1.PodEvicting), v1alpha1.GPUMemoryResource, v1alpha1.ReleaseFinalizer}

// TestTableHasEveryKey: each key that the API package names is in the table, and each key of the table is documented.
func TestTableHasEveryKey(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	files, err := filepath.Glob(filepath.Join(root, "apis", "scheduling", "v1alpha1", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var named []string
	for _, file := range files {
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		must.Succeed(t, err)
		ast.Inspect(source, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && underPrefix(text) && !slices.Contains(noKeys, text) {
					named = append(named, text)
				}
			}
			return true
		})
	}
	for _, name := range named {
		if _, ok := Find(name); !ok {
			t.Errorf("%s is not in the table", name)
		}
	}
	docs, err := os.ReadFile(filepath.Join(root, "docs", "keys.md"))
	must.Succeed(t, err)
	for _, key := range Table {
		if !slices.Contains(named, key.Name) {
			t.Errorf("%s is in the table, and nobody names it", key.Name)
		}
		if !strings.Contains(string(docs), "`"+key.Name+"`") {
			t.Errorf("docs/keys.md lacks %s", key.Name)
		}
		if key.Value.Kind != Text && key.Value.Want == "" {
			t.Errorf("%s does not say what it takes", key.Name)
		}
		if _, err := regexp.Compile(key.Value.Pattern); err != nil {
			t.Errorf("%s: %v", key.Name, err)
		}
	}
}

func TestFindIgnored(t *testing.T) {
	const typo, where = Prefix + "required-topolgy", "an annotation of pods, PodGroups and Reservations"
	type entries = map[string]string
	for sentence, c := range map[string]struct {
		on                  Object
		annotations, labels entries
		want                []string
	}{
		"keys of others":                {on: Pod, annotations: entries{"example.com/gang": "x"}, labels: entries{"app": "a"}},
		"keys where they belong":        {on: Pod, annotations: entries{v1alpha1.GangAnnotation: "x"}, labels: entries{v1alpha1.RoleLabel: "x"}},
		"a letter is missing":           {on: Pod, annotations: entries{typo: "x"}, want: []string{typo + " is not a key that is read here: did you mean " + v1alpha1.RequiredTopologyAnnotation + "?"}},
		"capitals":                      {on: Pod, annotations: entries{Prefix + "Gang": "x"}, want: []string{Prefix + "Gang is not a key that is read here: did you mean " + v1alpha1.GangAnnotation + "?"}},
		"a key like no other":           {on: Pod, annotations: entries{Prefix + "colour-of-the-sky": "x"}, want: []string{Prefix + "colour-of-the-sky is not a key that is read here; the nearest is " + v1alpha1.TopologySlicesAnnotation}},
		"no name":                       {on: Pod, annotations: entries{Prefix: "x"}, want: []string{Prefix + " is not a key that is read here: did you mean " + v1alpha1.WhyAnnotation + "?"}},
		"Koordinator's, with more":      {on: PodGroup, annotations: entries{KoordinatorPrefix + "gang-groups": "x"}, want: []string{KoordinatorPrefix + "gang-groups is not a key that is read here: did you mean " + v1alpha1.GroupsAnnotation + "?"}},
		"much like Koordinator's":       {on: PodGroup, annotations: entries{KoordinatorPrefix + "min-avalable": "x"}, want: []string{KoordinatorPrefix + "min-avalable is not a key that is read here: did you mean " + v1alpha1.MinAvailableAnnotation + "?"}},
		"ours, by Koordinator's prefix": {on: Pod, annotations: entries{KoordinatorPrefix + "required-topology": "x"}, want: []string{KoordinatorPrefix + "required-topology is not a key that is read here: did you mean " + v1alpha1.RequiredTopologyAnnotation + "?"}},
		"Koordinator's, by our prefix":  {on: Pod, annotations: entries{Prefix + "min-available": "x"}, want: []string{Prefix + "min-available is not a key that is read here: did you mean " + v1alpha1.MinAvailableAnnotation + "?"}},
		"Koordinator's own":             {on: Pod, annotations: entries{KoordinatorPrefix + "bound-time": "x"}},
		"a label that is none":          {on: PodGroup, labels: entries{v1alpha1.RequiredTopologyAnnotation: "x"}, want: []string{v1alpha1.RequiredTopologyAnnotation + " has no effect as a label of PodGroups: it is " + where}},
		"an annotation that is none":    {on: Pod, annotations: entries{v1alpha1.QueueLabel: "x"}, want: []string{v1alpha1.QueueLabel + " has no effect as an annotation of pods: it is an annotation of namespaces, and a label of pods and PodGroups"}},
		"on the owner of the pods":      {on: Owner, annotations: entries{v1alpha1.RequiredTopologyAnnotation: "x"}, want: []string{v1alpha1.RequiredTopologyAnnotation + " has no effect here: it is " + where + "; put it on the pod template"}},
		"a key of Reservations there":   {on: Owner, labels: entries{v1alpha1.PlanLabel: "x"}, want: []string{v1alpha1.PlanLabel + " has no effect as a label of workloads: it is a label of PodMigrations and Reservations"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got []string
			for _, one := range FindIgnored(c.on, c.annotations, c.labels) {
				got = append(got, one.Key+" "+one.Why)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("FindIgnored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "ABC", 0}, {"kitten", "sitting", 3}, {"topolgy", "topology", 1}, {"ab", "ba", 2}} {
		if got, back := Distance(c.a, c.b), Distance(c.b, c.a); got != c.want || back != c.want {
			t.Errorf("from %q to %q it is %d, and back %d; want %d", c.a, c.b, got, back, c.want)
		}
	}
}

// FuzzFindIgnored: a key of the table is never unknown, and what is reported ends.
func FuzzFindIgnored(f *testing.F) {
	f.Add("gang", "x")
	f.Add("Ümläut\x00", "")
	f.Fuzz(func(t *testing.T, name, value string) {
		entries := map[string]string{Prefix + name: value, KoordinatorPrefix + name: value}
		_, known := Find(Prefix + name)
		for _, one := range FindIgnored(Pod, entries, nil) {
			if one.Why == "" || entries[one.Key] != one.Value {
				t.Errorf("%+v leaves something out", one)
			}
			if known && strings.Contains(one.Why, "is not a key") && one.Key == Prefix+name {
				t.Errorf("%s is a key, and %s", one.Key, one.Why)
			}
		}
	})
}
