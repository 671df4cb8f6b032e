package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats t as Python's datetime.strftime does on Linux in the C
// locale, for a datetime without a zone (datetime.now()).
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		flag := byte(0)
		if strings.IndexByte("-_0^#", format[i]) >= 0 && i+1 < len(format) {
			flag = format[i]
			i++
		}
		s, ok := directive(format[i], t)
		if !ok {
			if flag != 0 {
				i--
			}
			b.WriteByte('%')
			b.WriteByte(format[i])
			continue
		}
		b.WriteString(withFlag(s, flag, format[i]))
	}
	return b.String()
}

// withFlag applies glibc's flags: - no padding, _ spaces, 0 zeros, ^ upper
// case, # the other case.
func withFlag(s string, flag, c byte) string {
	padded := strings.TrimLeft(s[:len(s)-1], " 0") + s[len(s)-1:]
	numeric := strings.IndexByte("CdegGHIjklmMSuUVwWyY", c) >= 0
	switch {
	case flag == '^' || flag == '#' && c != 'p' && c != 'Z':
		return strings.ToUpper(s)
	case flag == '#':
		return strings.ToLower(s)
	case !numeric:
	case flag == '-':
		return padded
	case flag == '_':
		return strings.Repeat(" ", len(s)-len(padded)) + padded
	case flag == '0':
		return strings.Repeat("0", len(s)-len(padded)) + padded
	}
	return s
}

func directive(c byte, t time.Time) (string, bool) {
	year, week := t.ISOWeek()
	hour12 := (t.Hour()+11)%12 + 1
	num := func(width, n int) (string, bool) { return fmt.Sprintf("%0*d", width, n), true }
	switch c {
	case 'a':
		return t.Format("Mon"), true
	case 'A':
		return t.Format("Monday"), true
	case 'b', 'h':
		return t.Format("Jan"), true
	case 'B':
		return t.Format("January"), true
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 2006"), true
	case 'C':
		return num(2, t.Year()/100)
	case 'd':
		return num(2, t.Day())
	case 'D', 'x':
		return t.Format("01/02/06"), true
	case 'e':
		return fmt.Sprintf("%2d", t.Day()), true
	case 'f':
		return num(6, t.Nanosecond()/1000)
	case 'F':
		return t.Format("2006-01-02"), true
	case 'g':
		return num(2, year%100)
	case 'G':
		return num(4, year)
	case 'H':
		return num(2, t.Hour())
	case 'I':
		return num(2, hour12)
	case 'j':
		return num(3, t.YearDay())
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", hour12), true
	case 'm':
		return num(2, int(t.Month()))
	case 'M':
		return num(2, t.Minute())
	case 'n':
		return "\n", true
	case 'p':
		return t.Format("PM"), true
	case 'P':
		return t.Format("pm"), true
	case 'r':
		return t.Format("03:04:05 PM"), true
	case 'R':
		return t.Format("15:04"), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'S':
		return num(2, t.Second())
	case 't':
		return "\t", true
	case 'T', 'X':
		return t.Format("15:04:05"), true
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1), true
	case 'U':
		return num(2, (t.YearDay()+6-int(t.Weekday()))/7)
	case 'V':
		return num(2, week)
	case 'w':
		return fmt.Sprint(int(t.Weekday())), true
	case 'W':
		return num(2, (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
	case 'y':
		return num(2, t.Year()%100)
	case 'Y':
		return fmt.Sprint(t.Year()), true
	case 'z', 'Z':
		return "", true
	case '%':
		return "%", true
	}
	return "", false
}
