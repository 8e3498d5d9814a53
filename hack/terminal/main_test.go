package main

import (
	"encoding/xml"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	const markdown = "```\n$ show <all>\nNAME   \"A\" & B\n\n  b    [##..]\n```\n"
	var out strings.Builder
	if err := run([]string{"show <all>"}, strings.NewReader(markdown), &out); err != nil {
		t.Fatal(err)
	}
	var picture struct {
		Width int      `xml:"width,attr"`
		Title string   `xml:"title"`
		Desc  string   `xml:"desc"`
		Text  []string `xml:"text"`
	}
	if err := xml.Unmarshal([]byte(out.String()), &picture); err != nil {
		t.Fatalf("%v:\n%s", err, &out)
	}
	if got, want := strings.Join(picture.Text, "|"), `$ show <all>|NAME   "A" & B|  b    [##..]`; got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	if picture.Title != "show <all>" || !strings.HasSuffix(markdown, picture.Desc+"```\n") || picture.Width < 14*8 {
		t.Errorf("picture: %+v", picture)
	}
	if err := run([]string{"hide"}, strings.NewReader(markdown), &out); err == nil {
		t.Error("a command that the text does not show has a picture")
	}
}
