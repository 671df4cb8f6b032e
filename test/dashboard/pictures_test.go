package dashboard

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/lab/stage"
	"warmroute/render/testkit/must"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var pictures = flag.Bool("pictures", false, "write the pictures of docs/explain.md into docs/images (5 minutes)")

// TestPictures writes the page in the states that docs/explain.md shows: idle, loaded, with
// a dead replica and with a dead router, on a desktop and on a phone.
func TestPictures(t *testing.T) {
	if !*pictures {
		t.Skip("-pictures is not set")
	}
	site := stage.StartSite(t, stage.Fleet{Replicas: 3, Blocks: 2048, BlockSize: 16, Model: "sim", PrefillRate: 4000, DecodeRate: 100, StepTokens: 2048}, "")
	b := open(t)
	b.do(t, chromedp.Navigate("http://"+site.Admin+"/dashboard/"), chromedp.WaitVisible("#fleet tbody tr:nth-child(3)", chromedp.ByQuery), chromedp.WaitVisible("#chart-hit canvas", chromedp.ByQuery))
	b.picture(t, "idle", 1160)
	converse(t, site.URL, 75*time.Second)
	time.Sleep(40 * time.Second) // minutes without requests are a gap
	converse(t, site.URL, 60*time.Second)
	b.picture(t, "loaded", 1160)
	b.do(t, chromedp.Click("#decisions > tbody > tr:nth-child(2) > td", chromedp.ByQuery), chromedp.WaitVisible(".box", chromedp.ByQuery))
	b.picture(t, "decision", 720)
	b.do(t, chromedp.Click("#decisions > tbody > tr:nth-child(2) > td", chromedp.ByQuery))
	site.Replicas[1].Kill()
	b.do(t, chromedp.WaitVisible("#fleet tbody td.bad", chromedp.ByQuery))
	until(t, "the page says why", func() bool { return strings.Contains(b.text(t, "#fleet tbody"), "connection refused") })
	b.picture(t, "dead-replica", 720)
	site.Router.Kill()
	b.do(t, chromedp.WaitVisible("#lost", chromedp.ByQuery), chromedp.Evaluate("scrollTo(0, 0)", nil))
	b.picture(t, "dead-router", 720)
}

// converse has conversations of several turns at once.
func converse(t *testing.T, front string, length time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	end := time.Now().Add(length)
	for i := range 14 {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				text := strings.Repeat(fmt.Sprint("You are assistant ", i%3, " of the library. "), 40) + strings.Repeat(fmt.Sprint("Book ", length, i, n, ". "), 60)
				for range 2 + rand.IntN(4) {
					chat(t, front, text)
					text += strings.Repeat(fmt.Sprint(" and then ", rand.IntN(100)), 40)
					time.Sleep(rand.N(600 * time.Millisecond))
				}
			}
		})
	}
	all.Wait()
}

// picture writes the page on a desktop, of this height, and on a phone.
func (b *browser) picture(t *testing.T, state string, height int64) {
	t.Helper()
	for device, size := range map[string][2]int64{"desktop": {1280, height}, "phone": {400, 900}} {
		var shot []byte
		b.do(t, emulation.SetDeviceMetricsOverride(size[0], size[1], 1, device == "phone"))
		if below := map[string]string{"dead-replica": "fleet", "split": "splits"}[state]; below != "" { // the header is on every part of the page
			b.do(t, chromedp.Evaluate(fmt.Sprintf(`scrollTo(0, document.getElementById(%q).getBoundingClientRect().top + scrollY - 150)`, below), nil))
		}
		b.do(t, chromedp.Sleep(3*time.Second), chromedp.CaptureScreenshot(&shot))
		small := must.Get(reduce(shot))(t)
		must.Do(t, os.WriteFile(filepath.Join("../../docs/images", "dashboard-"+state+"-"+device+".png"), small, 0o644))
	}
}

// reduce writes a picture with its 255 most frequent colours, which is half of the size.
func reduce(shot []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, fmt.Errorf("decode the picture: %w", err)
	}
	count := map[color.RGBA]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			count[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	var frequent color.Palette
	for c := range count {
		frequent = append(frequent, c)
	}
	slices.SortFunc(frequent, func(a, b color.Color) int { return count[b.(color.RGBA)] - count[a.(color.RGBA)] })
	few := image.NewPaletted(full.Bounds(), frequent[:min(255, len(frequent))])
	draw.Draw(few, few.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few)
	return out.Bytes(), err
}

// TestSplitPictures writes the page of a fleet in which replicas compute prompts for others: the
// sums, the fleet, and a decision.
func TestSplitPictures(t *testing.T) {
	if !*pictures {
		t.Skip("-pictures is not set")
	}
	site := stage.StartSite(t, apart, byPrice)
	b := open(t)
	b.do(t, chromedp.Navigate("http://"+site.Admin+"/dashboard/"), chromedp.WaitVisible("#fleet tbody tr:nth-child(3)", chromedp.ByQuery))
	occupy(t, site.URL)
	for i, end := 0, time.Now().Add(time.Minute); time.Now().Before(end); i++ {
		chat(t, site.URL, long(i/3)+strings.Repeat(" and on", 40*(i%3)))
	}
	b.do(t, chromedp.WaitVisible("#splits", chromedp.ByQuery))
	openSplit(t, b, site.URL, 1000)
	b.picture(t, "split", 1100)
}
