package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats t as Python's datetime.strftime does on Linux in the C locale, for a
// datetime without a zone (datetime.now()).
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

// withFlag applies glibc's flags: - without padding, _ spaces, 0 zeros, ^ upper case, #
// the other case.
func withFlag(s string, flag, c byte) string {
	if s == "" {
		return s
	}
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

// layouts maps directives to layouts of package time.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM", 'P': "pm",
	'c': "Mon Jan _2 15:04:05 2006", 'D': "01/02/06", 'x': "01/02/06", 'e': "_2", 'F': "2006-01-02",
	'r': "03:04:05 PM", 'R': "15:04", 'T': "15:04:05", 'X': "15:04:05",
}

// directive formats t by the letter of a directive; ok is false for any other letter.
func directive(c byte, t time.Time) (s string, ok bool) {
	if layout := layouts[c]; layout != "" {
		return t.Format(layout), true
	}
	switch c {
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", hour12(t)), true
	case 'n':
		return "\n", true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 't':
		return "\t", true
	case 'Y':
		return fmt.Sprint(t.Year()), true
	case 'z', 'Z':
		return "", true
	case '%':
		return "%", true
	}
	n, width := number(c, t)
	return fmt.Sprintf("%0*d", width, n), width > 0
}

// number returns the value and the width of a numeric directive, which zeros pad; width
// 0: c is no numeric directive.
func number(c byte, t time.Time) (n, width int) {
	isoYear, isoWeek := t.ISOWeek()
	monday := (int(t.Weekday()) + 6) % 7 // days since Monday
	switch c {
	case 'C':
		return t.Year() / 100, 2
	case 'd':
		return t.Day(), 2
	case 'f':
		return t.Nanosecond() / 1000, 6
	case 'g':
		return isoYear % 100, 2
	case 'G':
		return isoYear, 4
	case 'H':
		return t.Hour(), 2
	case 'I':
		return hour12(t), 2
	case 'j':
		return t.YearDay(), 3
	case 'm':
		return int(t.Month()), 2
	case 'M':
		return t.Minute(), 2
	case 'S':
		return t.Second(), 2
	case 'u':
		return monday + 1, 1
	case 'U':
		return (t.YearDay() + 6 - int(t.Weekday())) / 7, 2
	case 'V':
		return isoWeek, 2
	case 'w':
		return int(t.Weekday()), 1
	case 'W':
		return (t.YearDay() + 6 - monday) / 7, 2
	case 'y':
		return t.Year() % 100, 2
	}
	return 0, 0
}

func hour12(t time.Time) int { return (t.Hour()+11)%12 + 1 }
