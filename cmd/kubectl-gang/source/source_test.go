package source

import "testing"

func TestMore(t *testing.T) {
	for text, want := range map[string]*More{"": nil, "+4:a100": {Count: 4, Pool: "a100"}, "2:pool=x": {Count: 2, Pool: "pool=x"}} {
		got, err := (&Question{nodes: text}).More()
		if err != nil || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"4", "+x:a", "+0:a", "-1:a", "+4:", "+99999:a"} {
		if _, err := (&Question{nodes: text}).More(); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
