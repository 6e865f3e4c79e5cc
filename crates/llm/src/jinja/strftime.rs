//! Times as C's `strftime` writes them in its own locale: `strftime_now`.

use std::rc::Rc;

use super::failure::Result;
use super::meter::{Meter, Writer};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A time in UTC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// After the beginning of 1970.
    pub(super) seconds: i64,
    pub(super) micros: u32,
}

/// The parts of a time.
struct Parts {
    time: Time,
    year: i64,
    month: i64,
    day: i64,
    /// Day of the year, from 0, and of the week, from Sunday.
    year_day: i64,
    week_day: i64,
    second: i64,
}

/// Padding, case and width of a code.
#[derive(Clone, Copy, Default)]
struct Form {
    /// `-`, `_` or `0`.
    padding: Option<char>,
    is_upper: bool,
    swaps_case: bool,
    width: usize,
}

pub(super) fn strftime(format: &str, time: Time, meter: &Rc<Meter>) -> Result<String> {
    let (days, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let year_day = days - days_before(year);
    let parts = Parts { time, year, month, day, year_day, week_day: (days + 4).rem_euclid(7), second };
    let mut out = Writer::new(meter);
    parts.write(format, &mut out)?;
    Ok(out.into_text())
}

impl Parts {
    fn write(&self, format: &str, out: &mut Writer) -> Result<()> {
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            let (before, code) = rest.split_at(at);
            out.push(before)?;
            let mut chars = code.char_indices().skip(1).peekable();
            let mut form = Form::default();
            while let Some((_, flag)) = chars.next_if(|(_, char)| matches!(char, '-' | '_' | '0' | '^' | '#')) {
                match flag {
                    '^' => form.is_upper = true,
                    '#' => form.swaps_case = true,
                    padding => form.padding = Some(padding),
                }
            }
            while let Some((_, digit)) = chars.next_if(|(_, char)| char.is_ascii_digit()) {
                form.width = (form.width * 10 + digit.to_digit(10).unwrap_or(0) as usize).min(1 << 20);
            }
            while chars.next_if(|(_, char)| matches!(char, 'E' | 'O')).is_some() {}
            let Some((at, char)) = chars.next() else {
                out.push(code)?;
                return Ok(());
            };
            let (code, after) = code.split_at(at + char.len_utf8());
            self.code(char, form, code, out)?;
            rest = after;
        }
        out.push(rest)
    }

    fn code(&self, char: char, form: Form, code: &str, out: &mut Writer) -> Result<()> {
        let hour = self.second / 3600;
        let hour_of_12 = if hour % 12 == 0 { 12 } else { hour % 12 };
        let (iso_year, iso_week) = self.iso_week();
        let month = name(&MONTHS, self.month - 1);
        let day = name(&DAYS, self.week_day);
        let short = |name: &'static str| name.get(..3).unwrap_or_default();
        // Number, width, and padding.
        let number = match char {
            'Y' => Some((self.year, 0, '0')),
            'C' => Some((self.year.div_euclid(100), 2, '0')),
            'y' => Some((self.year.rem_euclid(100), 2, '0')),
            'G' => Some((iso_year, 0, '0')),
            'g' => Some((iso_year.rem_euclid(100), 2, '0')),
            'V' => Some((iso_week, 2, '0')),
            'm' => Some((self.month, 2, '0')),
            'd' => Some((self.day, 2, '0')),
            'e' => Some((self.day, 2, ' ')),
            'H' => Some((hour, 2, '0')),
            'k' => Some((hour, 2, ' ')),
            'I' => Some((hour_of_12, 2, '0')),
            'l' => Some((hour_of_12, 2, ' ')),
            'M' => Some((self.second / 60 % 60, 2, '0')),
            'S' => Some((self.second % 60, 2, '0')),
            'j' => Some((self.year_day + 1, 3, '0')),
            'u' => Some(((self.week_day + 6) % 7 + 1, 1, '0')),
            'w' => Some((self.week_day, 1, '0')),
            'U' => Some(((self.year_day + 7 - self.week_day) / 7, 2, '0')),
            'W' => Some(((self.year_day + 7 - (self.week_day + 6) % 7) / 7, 2, '0')),
            's' => Some((self.time.seconds, 1, '0')),
            _ => None,
        };
        if let Some((number, digits, fill)) = number {
            let (fill, digits) = match form.padding {
                Some('-') => (' ', 0),
                Some('_') => (' ', digits),
                Some(_) => ('0', digits),
                None => (fill, digits),
            };
            let text = number.to_string();
            out.fill(fill, digits.max(form.width).saturating_sub(text.len()))?;
            return out.push(&text);
        }
        // Other codes write text; some are formats themselves.
        let mut text = Writer::new(out.meter());
        match char {
            'a' => text.push(short(day))?,
            'A' => text.push(day)?,
            'b' | 'h' => text.push(short(month))?,
            'B' => text.push(month)?,
            'p' => text.push(if hour < 12 { "AM" } else { "PM" })?,
            'P' => text.push(if hour < 12 { "am" } else { "pm" })?,
            'n' => text.push("\n")?,
            't' => text.push("\t")?,
            '%' => text.push("%")?,
            'D' | 'x' => self.write("%m/%d/%y", &mut text)?,
            'F' => self.write("%Y-%m-%d", &mut text)?,
            'R' => self.write("%H:%M", &mut text)?,
            'T' | 'X' => self.write("%H:%M:%S", &mut text)?,
            'r' => self.write("%I:%M:%S %p", &mut text)?,
            'c' => self.write("%a %b %e %H:%M:%S %Y", &mut text)?,
            // Python's own, which have no flags.
            'f' if code == "%f" => text.push(&format!("{:06}", self.time.micros))?,
            // A time without a zone.
            'z' | 'Z' => {}
            _ => return out.push(code),
        }
        let text = text.into_text();
        let text = match char {
            'p' if form.swaps_case => text.to_lowercase(),
            _ if form.is_upper || form.swaps_case && matches!(char, 'a' | 'A' | 'b' | 'B' | 'h') => text.to_uppercase(),
            _ => text,
        };
        let fill = if form.padding == Some('0') { '0' } else { ' ' };
        out.fill(fill, form.width.saturating_sub(text.len()))?;
        out.push(&text)
    }

    /// Year and week of ISO 8601, whose weeks begin on Mondays and belong to the year of their Thursday.
    fn iso_week(&self) -> (i64, i64) {
        let monday = (self.week_day + 6) % 7;
        let thursday = self.year_day - monday + 3;
        let length = |year: i64| days_before(year + 1) - days_before(year);
        if thursday < 0 {
            let year = self.year - 1;
            return (year, (thursday + length(year)) / 7 + 1);
        }
        if thursday >= length(self.year) {
            return (self.year + 1, 1);
        }
        (self.year, thursday / 7 + 1)
    }
}

fn name(names: &[&'static str], index: i64) -> &'static str {
    names.get(index as usize).copied().unwrap_or_default()
}

/// Days from 1970 to the beginning of a year of the Gregorian calendar.
fn days_before(year: i64) -> i64 {
    let past = year - 1;
    365 * past + past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400) - 719_162
}

/// Year, month and day of a day after 1970, by counting from the first of March of a year that 400 divides.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    // Days from March of year 0 to 1970.
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_OF_400_YEARS);
    let of_era = days.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The samples of Python's `datetime.strftime`.
    #[test]
    fn codes_are_those_of_c() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/llm/jinja.json");
        let samples: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let times = samples["times"].as_array().unwrap();
        assert!(times.len() > 500);
        for row in times {
            let (format, seconds) = (row[0].as_str().unwrap(), row[1].as_i64().unwrap());
            let text = strftime(format, Time { seconds, micros: 4567 }, &Meter::new(0)).unwrap();
            assert_eq!(text, row[2].as_str().unwrap(), "{format} of {seconds}");
        }
    }
}
