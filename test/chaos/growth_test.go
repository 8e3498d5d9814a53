package main

import (
	"strings"
	"testing"
)

// TestGrowth: what grows all the time is found, and what only fills, swings or jumps once is not.
func TestGrowth(t *testing.T) {
	line := func(n int, f func(i int) float64) (values []float64) {
		for i := range n {
			values = append(values, f(i))
		}
		return values
	}
	noise := func(i int) float64 { return float64(i * 7 % 10) }
	cases := map[string]struct {
		values       []float64
		judged, grow bool
	}{
		"a leak":                        {line(60, func(i int) float64 { return 100 + float64(i) }), true, true},
		"a leak under noise":            {line(480, func(i int) float64 { return 100 + float64(i)/4 + 3*noise(i) }), true, true},
		"one more file every hour":      {line(480, func(i int) float64 { return 10 + float64(i/60) }), true, true},
		"always the same":               {line(60, func(int) float64 { return 7 }), true, false},
		"always none":                   {line(60, func(int) float64 { return 0 }), true, false},
		"noise":                         {line(60, func(i int) float64 { return 100 + 5*noise(i) }), true, false},
		"caches fill in the first hour": {line(480, func(i int) float64 { return 100 + float64(min(i, 60)) }), true, false},
		"one jump in the middle":        {line(60, func(i int) float64 { return 100 + float64(i/30*100) }), true, false},
		"it grows, and is freed":        {line(60, func(i int) float64 { return 100 + float64(i%45*4) }), true, false},
		"less than a fifth":             {line(60, func(i int) float64 { return 1000 + float64(i) }), true, false},
		"a leak that is young":          {line(12, func(i int) float64 { return float64(i) }), false, false},
	}
	for name, c := range cases {
		q, ok := quartersOf(c.values)
		if ok != c.judged || ok && q.grow() != c.grow {
			t.Errorf("%s: judged %t, quarters %v, grow %t; want %t and %t", name, ok, q, q.grow(), c.judged, c.grow)
		}
	}
}

// TestSamples: what grows is named, and both a scheduler and a controller have to be judged.
func TestSamples(t *testing.T) {
	s := samples{}
	for i := range 20 {
		s.add("scheduler-1, start 1"+leads, map[string]float64{"goroutines": float64(100 + 10*i), "open files": 12})
	}
	if s.enough() {
		t.Error("without a controller it is enough")
	}
	for range 20 {
		s.add("controller-1, start 1"+leads, map[string]float64{"goroutines": 90})
	}
	s.add("controller-2, start 2", map[string]float64{"goroutines": 90})
	if !s.enough() {
		t.Error("with both it is not enough")
	}
	for i := range 20 {
		s.add(load.process, map[string]float64{load.what: float64(300 + i)})
	}
	if !s.steady() {
		t.Error("20 pods more in 300 count as an unsteady load")
	}
	for i := range 20 {
		s.add(load.process, map[string]float64{load.what: float64(300 + 50*i)})
	}
	if s.steady() {
		t.Error("three times as many pods count as a steady load")
	}
	text := s.String()
	if strings.Count(text, "GROWS") != 2 || !strings.Contains(text, "not judged: controller-2, start 2, with 1 samples") {
		t.Errorf("want one line that grows, and one that is too short:\n%s", text)
	}
}
