package main

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/hack/crdfilter"
)

// TestQuantity: all that the pattern takes can be read, is not negative, and is what users write.
func TestQuantity(t *testing.T) {
	pattern := regexp.MustCompile(quantity)
	read := func(text string) {
		t.Helper()
		if q, err := resource.ParseQuantity(text); err != nil || q.Sign() < 0 {
			t.Errorf("%q: %v, %v", text, q, err)
		}
	}
	const signs = "+-.0123456789KMGTPEinumke"
	random := rand.New(rand.NewPCG(1, 1))
	taken := 0
	for range 1_000_000 {
		text := make([]byte, 1+random.IntN(6))
		for i := range text {
			text[i] = signs[random.IntN(len(signs))]
		}
		if pattern.Match(text) {
			taken++
			read(string(text))
		}
	}
	if taken < 1000 {
		t.Errorf("only %d texts were taken: the test says nothing", taken)
	}
	long := strings.Repeat("9", 32)
	for _, text := range []string{"0", "1", "500m", "1.5Gi", "1e3", "100k", ".5", "8", "+1", long, long + "e99", long + "." + long + "e-99", long + "Ei"} {
		if !pattern.MatchString(text) {
			t.Errorf("%q is refused", text)
		}
		read(text)
	}
	for _, text := range []string{"", "-1", "1e1.5", "1e100", "1 Gi", "one", long + "9"} {
		if pattern.MatchString(text) {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestDateTime: the pattern takes what Go writes and reads, and not what only others read.
func TestDateTime(t *testing.T) {
	pattern := regexp.MustCompile(crdfilter.DateTime)
	for _, text := range []string{"2027-01-31T06:00:00Z", "2027-01-31T06:00:00.123456789+14:00", "2027-01-31T06:00:00-03:30"} {
		if _, err := time.Parse(time.RFC3339, text); err != nil || !pattern.MatchString(text) {
			t.Errorf("%q: taken %t, %v", text, pattern.MatchString(text), err)
		}
	}
	for _, text := range []string{"2027-01-31t06:00:00z", "2027-01-31 06:00:00Z", "2027-01-31T06:00:00", "2027-01-31T06:00:00+24:00", "2027-01-31"} {
		if pattern.MatchString(text) {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestRewrite: the descriptions of the template go, and nothing else; a schema that has become another one is noticed.
func TestRewrite(t *testing.T) {
	var out strings.Builder
	if err := crdfilter.Run(strings.NewReader(`{"spec": {"names": {"kind": "Reservation"}, "versions": [{"schema": {"openAPIV3Schema": {"properties": {"spec": {}}}}}]}}`), &out, rewrite); err == nil || !strings.Contains(err.Error(), "there is no template") {
		t.Errorf("a schema without a template: %v", err)
	}
	schema := map[string]any{"description": "a", "properties": map[string]any{
		"description": map[string]any{"description": "b", "type": "string"},
		"port":        map[string]any{"x-kubernetes-int-or-string": true},
	}}
	crdfilter.Walk(schema, func(s map[string]any) { delete(s, "description") })
	crdfilter.Walk(schema, tighten)
	properties := schema["properties"].(map[string]any)
	if schema["description"] != nil || properties["description"].(map[string]any)["type"] != "string" || properties["port"].(map[string]any)["maximum"] == nil {
		t.Errorf("it has become %v", schema)
	}
}
